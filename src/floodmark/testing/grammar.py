"""The grammar of transcripts: YAML -> operators and steps. Unknown words are errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from floodmark.core.errors import DefinitionError
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.graph.steps import Read
from floodmark.spec.graph.stream import Stream
from floodmark.spec.values.schema import Column, Schema
from floodmark.spec.windowing import aggregates as known
from floodmark.spec.windowing.evictors import Evictor, KeepLast, KeepNear, KeepWithin
from floodmark.spec.windowing.triggers import (
    AfterCount,
    AfterDelay,
    AfterWatermark,
    EndOfInput,
    Every,
    Purging,
    Trigger,
    all_of,
    any_of,
)
from floodmark.spec.windowing.windows import Count, Cumulative, Global, Session, Sliding, Tumbling, Window

Result = tuple[Any, ...]
"""key, result, window start, window end; of a join left value, right value; of a late row: key, value, event time."""

_FUNCTIONS: dict[str, Callable[[], known.Builtin]] = {
    "sum": lambda: known.sum("value"),
    "count": known.count,
    "collect": lambda: known.collect("value"),
    "max": lambda: known.max("value"),
    "min": lambda: known.min("value"),
    "mean": lambda: known.mean("value"),
}
_STEPS = ("rows", "left", "right", "watermark", "processing_time", "end", "restart", "expect", "expect_late")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a transcript: a word and its argument."""

    word: str
    argument: Any = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """One case.

    Args:
        name: of the case.
        operator: what it is about: reads ``events`` (key, value, at), a join ``left`` and ``right``, and writes ``result``.
        steps: in order.
    """

    name: str
    operator: Operator
    steps: tuple[Step, ...]

    @property
    def clocked(self) -> bool:
        """Whether the transcript moves processing time."""
        return any(step.word == "processing_time" for step in self.steps)

    def expected(self, word: str) -> list[Result]:
        """The results that all steps of a word expect, in order."""
        return [found for step in self.steps if step.word == word for found in step.argument]


def load(path: Path) -> list[Transcript]:
    """The transcripts of a file.

    Raises:
        DefinitionError: DEFINITION-110, not in the grammar; unknown words are never passed over.
    """
    cases = yaml.safe_load(path.read_text())
    if not isinstance(cases, list):
        raise wrong(str(path), "a list of cases", type(cases).__name__)
    return [transcript(case, f"{path.name}[{number}]") for number, case in enumerate(cases)]


def transcript(case: Mapping[str, Any], where: str) -> Transcript:
    """One case of the grammar."""
    _only(case, {"name", "source", "operator", "steps"}, where)
    name = str(case.get("name", where))
    where = f"case '{name}'"
    steps = tuple(_step(step, f"{where}, step {number + 1}") for number, step in enumerate(case.get("steps", ())))
    rows = {
        word: [row for step in steps if step.word == word for row in step.argument]
        for word in ("rows", "left", "right")
    }
    clocked = any(step.word == "processing_time" for step in steps)
    raw = case.get("operator", {})
    joins = isinstance(raw, Mapping) and "join" in raw
    other = ("rows",) if joins else ("left", "right")
    if any(step.word in other for step in steps):
        expected = "left: and right: steps for a join" if joins else "rows: steps"
        raise wrong(where, expected, ", ".join(sorted({step.word for step in steps} & {*other})))
    if joins:
        return Transcript(name, _join(raw, rows["left"], rows["right"], where), steps)
    return Transcript(name, _operator(raw, rows["rows"], where, clocked=clocked), steps)


def _step(step: Any, where: str) -> Step:
    word, value = (step, None) if isinstance(step, str) else next(iter(step.items()))
    if word not in _STEPS or (isinstance(step, Mapping) and len(step) != 1):
        raise wrong(where, f"one of {', '.join(_STEPS)}", repr(step))
    if word in {"expect", "expect_late"}:
        return Step(word, [tuple(plain(v) for v in expected_row) for expected_row in value or []])
    return Step(word, value)


def _operator(raw: Mapping[str, Any], rows: Sequence[Sequence[Any]], where: str, *, clocked: bool) -> Operator:
    _only(
        raw,
        {"window", "trigger", "evictor", "allowed_lateness", "late", "accumulation", "function"},
        f"{where}, operator",
    )
    schema = _schema(rows)
    function = raw.get("function", "sum")
    if function not in _FUNCTIONS:
        raise wrong(where, f"a function: {', '.join(_FUNCTIONS)}", repr(function))
    trigger = raw.get("trigger")
    windowed = (
        Stream(Read("events", schema), "result")
        .key_by("key")
        .window(
            _window(raw.get("window"), where),
            trigger=None if trigger is None else _trigger(trigger, where, clocked=clocked),
            evictor=_evictor(raw["evictor"], where) if raw.get("evictor") is not None else None,
            allowed_lateness=str(raw.get("allowed_lateness", "0s")),
            late=raw.get("late", "drop"),
            accumulation=raw.get("accumulation", "accumulating"),
        )
    )
    result = windowed.aggregate(result=_FUNCTIONS[function]())
    return Operator("result", (Input(name="events", table="events", schema=schema),), (("", result.step),))


def _join(
    raw: Mapping[str, Any], left: Sequence[Sequence[Any]], right: Sequence[Sequence[Any]], where: str
) -> Operator:
    """``join: {interval: [lower, upper], include: both, kind: inner}``, or ``{window: ..., kind: inner}``."""
    _only(raw, {"join"}, f"{where}, operator")
    word, settings = _word(raw["join"], {"interval": {"include", "kind"}, "window": {"kind"}}, f"{where}, join")
    schemas = [_schema(rows) for rows in (left, right)]
    if schemas[0]["key"].type != schemas[1]["key"].type:
        schemas = [_schema([*left, *right])] * 2
    left_keyed, right_keyed = (
        Stream(Read(name, schema), "result").key_by("key")
        for name, schema in zip(("left", "right"), schemas, strict=True)
    )
    kind = settings.get("kind", "inner")
    if word == "interval":
        lower, upper = raw["join"]["interval"]
        include = settings.get("include", "both")
        joined = left_keyed.interval_join(
            right_keyed, str(lower), str(upper), kind=kind, include=include, prefix="right_"
        )
    else:
        joined = left_keyed.window_join(right_keyed, _window(raw["join"]["window"], where), kind=kind, prefix="right_")
    inputs = tuple(
        Input(name=name, table=name, schema=schema) for name, schema in zip(("left", "right"), schemas, strict=True)
    )
    return Operator("result", inputs, (("", joined.step),))


def _schema(rows: Sequence[Sequence[Any]]) -> Schema:
    kinds = [_kind([row[i] for row in rows]) for i in (0, 1)]
    return Schema(
        (
            Column(name="key", type=kinds[0]),
            Column(name="value", type=kinds[1]),
            Column(name="at", type="timestamp", nullable=False),
        )
    )


def _kind(values: Sequence[Any]) -> str:
    present = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in present) and present:
        return "boolean"
    if all(isinstance(v, int) for v in present):
        return "bigint"
    return "double" if all(isinstance(v, (int, float)) for v in present) else "string"


def _window(raw: Any, where: str) -> Window:
    if raw == "global":
        return Global()
    words = {
        "tumbling": {"offset"},
        "sliding": {"slide", "offset"},
        "cumulative": {"step", "offset"},
        "session": set[str](),
        "count": {"slide"},
    }
    word, settings = _word(raw, words, f"{where}, window")
    size, offset = raw[word], str(settings.get("offset", "0s"))
    match word:
        case "tumbling":
            return Tumbling(str(size), offset)
        case "sliding":
            return Sliding(str(size), str(settings.get("slide", size)), offset)
        case "cumulative":
            return Cumulative(str(size), str(settings.get("step", size)), offset)
        case "session":
            return Session(str(size))
        case _:
            return Count(size, settings.get("slide"))


_TRIGGERS: dict[str, set[str]] = {
    "after_count": set(),
    "after_delay": set(),
    "every": {"time"},
    "purging": set(),
    "watermark": set(),
    "any_of": set(),
    "all_of": set(),
}


def _trigger(raw: Any, where: str, *, clocked: bool) -> Trigger:
    if raw in ("after_watermark", "end_of_input"):
        return AfterWatermark() if raw == "after_watermark" else EndOfInput()
    word, settings = _word(raw, _TRIGGERS, f"{where}, trigger")
    argument = raw[word]
    inner = partial(_trigger, where=where, clocked=clocked)
    match word:
        case "after_count":
            return AfterCount(argument)
        case "after_delay":
            return AfterDelay(str(argument))
        case "every":
            return Every(str(argument), settings.get("time", "processing" if clocked else "event"))
        case "purging":
            return Purging(inner(argument))
        case "watermark":
            _only(argument or {}, {"early", "late"}, f"{where}, trigger")
            parts = {name: inner(part) for name, part in (argument or {}).items() if part is not None}
            return AfterWatermark(parts.get("early"), parts.get("late"))
        case _:
            return (any_of if word == "any_of" else all_of)(*(inner(part) for part in argument))


def _evictor(raw: Any, where: str) -> Evictor:
    when = {"when"}
    word, settings = _word(raw, {"keep_last": when, "keep_within": when, "keep_near": when}, f"{where}, evictor")
    argument = raw[word]
    match word:
        case "keep_last":
            return KeepLast(argument, settings.get("when", "before"))
        case "keep_within":
            return KeepWithin(str(argument), settings.get("when", "before"))
        case _:
            return KeepNear(argument, "value", settings.get("when", "before"))


def _word(raw: Any, words: Mapping[str, set[str]], where: str) -> tuple[str, dict[str, Any]]:
    """(mapping, allowed words -> their settings) -> the mapping's only word, and its settings."""
    known_words = [word for word in raw if word in words] if isinstance(raw, Mapping) else []
    if len(known_words) != 1:
        raise wrong(where, f"one of {', '.join(words)}", repr(raw))
    _only(raw, {known_words[0], *words[known_words[0]]}, where)
    return known_words[0], {word: value for word, value in raw.items() if word != known_words[0]}


def _only(raw: Mapping[Any, Any], words: set[str], where: str) -> None:
    unknown = {str(word) for word in raw} - words
    if unknown:
        raise wrong(where, f"only {', '.join(sorted(words)) or 'what was read'}", ", ".join(sorted(map(str, unknown))))


def wrong(where: str, expected: str, got: str) -> DefinitionError:
    """DEFINITION-110: not in the grammar."""
    return DefinitionError(where, expected, got, "See the grammar in docs/testing.md.", code="DEFINITION-110")


def plain(value: Any) -> Any:
    """Lists as tuples and floats rounded beyond what addition in another order changes, so that results can be counted."""
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    return float(f"{value:.9e}") if isinstance(value, float) else value
