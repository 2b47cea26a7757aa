"""Asks Sail what Spark has answered, and says where the two differ."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

from parity import spark_run
from parity.outcome import Outcome, alike
from parity.sail_side import Sail, column, kind_of
from parity.values import table_of, tables, tree_of

from floodmark.engines.embedded.parity.rendering import NotRendered, rendered
from floodmark.engines.embedded.parity.signatures import signatures
from floodmark.spec.expressions.tree import Call, Column, Literal
from floodmark.spec.expressions.typed import Typed

SERVERS = 3
TOGETHER = 10
OUTSIDE = frozenset(
    row
    for row, moment in enumerate(tables()["one"]["p1"].to_pylist())
    if moment is not None and not 1900 <= moment.year < 2100
)
"""Rows of ``one`` whose timestamp is refused where zones count."""
CHANCE = frozenset(
    ("current_timestamp()", "now()", "current_date()", "curdate()", "rand()", "random()", "randn()", "uuid()")
)
"""Of the clock and of chance: no two answers are alike, so their types alone are compared."""
ERRORS = 4
"""Rows of an expression that fail on Spark of which Sail is asked, one by one: of each kind of error first."""
_SINGLE = re.compile(r"\bfloat\b")
_UNKNOWN = re.compile(r"^!(?:unknown )?function: (\w+)")


def _refused(text: str) -> set[str]:
    """The signatures an expression that differs counts against; none where something in it may be to blame."""
    tree = tree_of(text)
    plain = all(isinstance(child.node, (Column, Literal)) for child in tree.children)
    return {exact for exact, _ in signatures(tree)} if plain else set()


def _nodes(tree: Typed) -> Iterator[Typed]:
    yield tree
    for child in tree.children:
        yield from _nodes(child)


def in_parts(folder: Path, known: Mapping[str, Outcome] = MappingProxyType({})) -> dict[str, Outcome]:
    """As ``outcomes``, of what Spark was asked in ``folder``, by several processes; expressions of one signature go to one of them."""
    answers = Kept(spark_run.kept(folder))
    accepted = [text for text in answers if answers[text][0] != "refused"]
    forms = {text: str(signatures(tree_of(text))) for text in accepted}
    parts: list[list[str]] = [[] for _ in range(SERVERS)]
    for place, (_, texts) in enumerate(
        itertools.groupby(sorted(accepted, key=forms.__getitem__), key=forms.__getitem__)
    ):
        parts[place % SERVERS].extend(texts)
    with get_context("spawn").Pool(SERVERS) as pool:
        found = pool.map(_part, [(folder, names, dict(known)) for names in parts])
    return {text: outcome for some in found for text, outcome in some.items()}


def _part(asked: tuple[Path, Sequence[str], Mapping[str, Outcome]]) -> dict[str, Outcome]:
    folder, names, known = asked
    answers = spark_run.kept(folder)
    sail = Sail(folder)
    try:
        return outcomes(sail, Kept({text: answers[text] for text in names}), known)
    finally:
        sail.close()


class Kept(Mapping[str, Sequence[str]]):
    """Answers that are kept compressed, as lists."""

    def __init__(self, packed: Mapping[str, bytes]) -> None:
        self.packed = packed

    def __getitem__(self, text: str) -> list[str]:
        return zlib.decompress(self.packed[text]).decode().split("\t")

    def __iter__(self) -> Iterator[str]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)


def outcomes(
    sail: Sail, answers: Mapping[str, Sequence[str]], known: Mapping[str, Outcome] = MappingProxyType({})
) -> dict[str, Outcome]:
    """Expression -> outcome, for those Spark computes; not for one whose signature is refused already.

    Args:
        sail: that is asked.
        answers: of Spark.
        known: outcomes of an earlier run, which hold where the SQL for Sail is the same.
    """
    run = _Run(sail, answers, known)
    for text, answer in answers.items():
        if answer[0] != "refused":
            run.take(text, answer)
    run.finish()
    return {text: replace(one, kind=answers[text][0], sql=run.sqls.get(text, "")) for text, one in run.found.items()}


class _Run:
    """Expressions asked of Sail, many in one query."""

    def __init__(self, sail: Sail, answers: Mapping[str, Sequence[str]], known: Mapping[str, Outcome]) -> None:
        self.sail, self.answers, self.known = sail, answers, known
        self.found: dict[str, Outcome] = {}
        self.sqls: dict[str, str] = {}
        self.waiting: dict[str, list[tuple[str, str]]] = {"one": [], "two": []}
        self.missing: set[str] = set()
        self.refused: set[str] = set()

    def take(self, text: str, answer: Sequence[str]) -> None:
        """One more expression, asked now or with others."""
        tree = tree_of(text)
        try:
            sql = rendered(tree)
        except NotRendered as reason:
            self.found[text] = Outcome("differs", _example(answer), f"not asked: {reason}")
            return
        self.sqls[text] = sql
        if text in self.known and self.known[text].sql == sql:
            self.note(text, self.known[text])
            return
        if {exact for exact, _ in signatures(tree)} & self.refused:
            return
        if lacking := self.missing & {node.node.name for node in _nodes(tree) if isinstance(node.node, Call)}:
            self.note(text, _failed(answer, f"unknown function: {min(lacking)}"))
            return
        failing = [str(row) for row, value in enumerate(answer[1:]) if value.startswith("!")]
        if len(failing) == len(answer) - 1:
            self.note(text, self.with_failing(text, Outcome("same", answer[1], "!", row=0)))
            return
        pairs = self.waiting[table_of(text)]
        pairs.append((text, _among(sql, f"r NOT IN ({', '.join(failing)})", answer[0]) if failing else sql))
        if len(pairs) == TOGETHER:
            self.ask(table_of(text))

    def ask(self, table: str) -> None:
        """Ask what is waiting."""
        pairs, self.waiting[table] = self.waiting[table], []
        for text, outcome in _together(self.sail, table, pairs, self.answers):
            self.note(text, outcome if outcome.verdict == "differs" else self.with_failing(text, outcome))

    def finish(self) -> None:
        """Ask the last ones."""
        for table, pairs in self.waiting.items():
            if pairs:
                self.ask(table)

    def note(self, text: str, outcome: Outcome) -> None:
        """Keep an outcome, and what need not be asked any more."""
        self.found[text] = outcome
        if outcome.verdict == "differs":
            self.refused |= _refused(text)
            self.missing |= {name[1] for name in [_UNKNOWN.search(outcome.sail)] if name}

    def with_failing(self, text: str, outcome: Outcome) -> Outcome:
        """The outcome once Sail was asked of rows that fail on Spark, which have to fail there."""
        values = self.answers[text][1:]
        for row in _failing(values):
            rows = _asked(
                self.sail,
                f"SELECT {_among(self.sqls[text], f'r = {row}', self.answers[text][0])} AS x FROM {table_of(text)}",
            )
            if not isinstance(rows, str):
                return Outcome("differs", values[row], column(rows.column(0))[row], row=row)
        return outcome


def _failing(values: Sequence[str]) -> list[int]:
    """At most ``ERRORS`` rows that fail: one of each kind of error, then others that are spread over the table."""
    # in ``Answers.java`` a builder of maps that has failed for a row has an AssertionError for the next one
    failing = [row for row, value in enumerate(values) if value.startswith("!") and value != "!AssertionError"]
    kinds = list({values[row]: row for row in failing}.values())
    others = [row for row in failing if row not in kinds]
    spread = max(1, len(others) // max(1, ERRORS - len(kinds)))
    return [*kinds, *others[::spread]][:ERRORS]


def _among(sql: str, rows: str, kind: str) -> str:
    """An expression computed for some rows alone. A CASE of booleans is made AND and OR by Sail, which computes them for all rows."""
    if kind == "boolean":
        return f"(CASE WHEN {rows} THEN CAST({sql} AS int) END <> 0)"
    return f"CASE WHEN {rows} THEN {sql} END"


def _together(
    sail: Sail, table: str, pairs: Sequence[tuple[str, str]], answers: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Outcome]]:
    """Several expressions in one query; in halves where one of them fails."""
    columns = ", ".join(f"{sql} AS x{i}" for i, (_, sql) in enumerate(pairs))
    rows = _asked(sail, f"SELECT r, {columns} FROM {table}")
    if isinstance(rows, str):
        if len(pairs) == 1 and "CAPABILITY-031" in rows:
            yield pairs[0][0], _refusing(sail, table, *pairs[0], answers[pairs[0][0]])
            return
        if len(pairs) == 1:
            text = pairs[0][0]
            yield text, _failed(answers[text], rows)
            return
        half = len(pairs) // 2
        yield from _together(sail, table, pairs[:half], answers)
        yield from _together(sail, table, pairs[half:], answers)
        return
    rows = rows.sort_by("r")
    for place, (text, _) in enumerate(pairs):
        answer = answers[text]
        yield (
            text,
            _compared(rows.column(place + 1), answer[0], answer[1:], range(len(answer)), by_chance=text in CHANCE),
        )


def _refusing(sail: Sail, table: str, text: str, sql: str, answer: Sequence[str]) -> Outcome:
    """The outcome where Sail is told to refuse some rows."""
    values = answer[1:]
    early = [row for row in range(len(values)) if "p1" in text and table == "one" and row in OUTSIDE]
    if early:
        rows = _asked(
            sail, f"SELECT r, CASE WHEN r NOT IN ({', '.join(map(str, early))}) THEN {sql} END AS x FROM {table}"
        )
        if not isinstance(rows, str):
            inside = ["!" if row in early else value for row, value in enumerate(values)]
            return _compared(rows.sort_by("r").column(1), answer[0], inside, range(len(values)))
    refused = (
        Outcome("same", "null", "null")
        if len(set(values)) == 1
        else Outcome("differs", _example(answer), "! CAPABILITY-031")
    )
    return _halved(sail, table, text, sql, answer, list(range(len(values)))) or refused


def _halved(sail: Sail, table: str, text: str, sql: str, answer: Sequence[str], rows: list[int]) -> Outcome | None:
    """The outcome of some rows, asked of fewer and fewer of them; None if all are refused."""
    values = ["!" if row not in rows else value for row, value in enumerate(answer[1:])]
    failing = {row for row in rows if answer[row + 1].startswith("!")}
    asked = [row for row in rows if row not in failing]
    if not asked:
        return None
    found = _asked(sail, f"SELECT r, {_among(sql, f'r IN ({str(asked)[1:-1]})', answer[0])} AS x FROM {table}")
    if not isinstance(found, str):
        return _compared(found.sort_by("r").column(1), answer[0], values, range(len(values)))
    if "CAPABILITY-031" not in found:
        return _failed(answer, found)
    if len(asked) == 1:
        return None
    half = len(asked) // 2
    halves = [
        one
        for some in (asked[:half], asked[half:])
        if (one := _halved(sail, table, text, sql, answer, some)) is not None
    ]
    return max(halves, key=lambda one: ("same", "close", "differs").index(one.verdict), default=None)


def _asked(sail: Sail, sql: str) -> Any:
    """A table, or the error as text."""
    try:
        return sail.query(sql)
    except Exception as error:  # noqa: BLE001 - whatever is raised is Sail's answer
        message = str(error).split("\n")[0][:160]
        if "Connection" in message or "UNAVAILABLE" in str(error) or "panic" in message.lower():
            sail.restart()
        return re.sub(r"\s+", " ", message) or type(error).__name__


def _compared(
    found: Any, kind: str, values: Sequence[str], places: Sequence[int], *, by_chance: bool = False
) -> Outcome:
    if kind_of(found.type) != kind and kind != "void":
        return Outcome("differs", f"type {kind}", f"type {kind_of(found.type)}")
    if by_chance:
        return Outcome("same", "", "", row=-1)
    if kind == "void":
        return (
            Outcome("same", "null", "null")
            if found.null_count == len(found)
            else Outcome("differs", "null", str(found[0]))
        )
    try:
        said = column(found)
    except Exception as error:  # noqa: BLE001 - a value that Python cannot hold is no value of Spark's
        return Outcome("differs", kind, f"!{type(error).__name__}: {error}"[:100])
    verdict = "same"
    for place, one, other in zip(places, values, said, strict=False):
        if one == other or one.startswith("!"):
            continue
        equal = alike(one, other, single=_SINGLE.search(kind) is not None)
        if equal == "differs":
            return Outcome("differs", one, other, row=place)
        verdict = "close" if equal == "close" else verdict
    row = next((i for i, value in enumerate(values) if value != "null" and value[0] != "!"), 0)
    return Outcome(verdict, values[row], said[row], row=places[row])


def _failed(answer: Sequence[str], error: str) -> Outcome:
    """Sail has no answer where Spark has one."""
    row = next((i for i, value in enumerate(answer[1:]) if value != "null" and not value.startswith("!")), 0)
    return Outcome("differs", answer[row + 1], f"!{error}", row=row)


def _example(answer: Sequence[str]) -> str:
    return next((value for value in answer[1:] if value not in {"null"} and not value.startswith("!")), "null")
