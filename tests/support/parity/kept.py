"""From verdicts to ``table.json``."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from parity.judgement import Judged
from parity.outcome import Outcome
from parity.values import table_of, tables

from floodmark.core.time import from_ms
from floodmark.core.types import known
from floodmark.engines.embedded.parity.signatures import general
from floodmark.engines.embedded.parity.table import VERDICTS, parted

LONGEST = 80


def functions_of(table: Mapping[str, Judged]) -> dict[str, Any]:
    """Function -> what is kept of it."""
    arguments: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    examples: dict[str, dict[str, list[str]]] = defaultdict(dict)
    differing: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for signature, judged in sorted(table.items()):
        name, form = parted(signature)
        arguments[name][judged.verdict].append(form)
        if judged.outcome is None:
            continue
        shown = example(judged.text, judged.outcome)
        if judged.verdict == "refused" and not judged.outcome.sail.startswith("!"):
            differing[name][form] = shown
        examples[name].setdefault(judged.verdict, shown)
    for name, forms in differing.items():
        examples[name]["refused"] = next(iter(forms.values()))
    return {
        name: {
            "arguments": {v: forms[v] for v in VERDICTS if v in forms},
            "examples": examples[name],
            "differing": differing[name],
        }
        for name, forms in sorted(arguments.items())
    }


def text_of(table: Mapping[str, Judged], aggregates: Mapping[tuple[str, str], Outcome]) -> str:
    """The whole file."""
    functions = functions_of(table)
    sums: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    sample: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for (function, kind), outcome in aggregates.items():
        changed = function in {"min", "max"} and kind in {"float", "double"}
        verdict = {"same": "rewritten" if changed else "agrees", "close": "close", "differs": "refused"}[
            outcome.verdict
        ]
        if general(kind) not in sums[function][verdict]:
            sums[function][verdict].append(general(kind))
        sample[function].setdefault(
            verdict, [outcome.sql, value(outcome.spark, outcome.kind), value(outcome.sail, outcome.kind)]
        )
    for forms in sums.values():  # one type of a kind that differs is one too many
        for verdict in ("agrees", "rewritten", "close"):
            forms[verdict] = [kind for kind in forms[verdict] if kind not in forms["refused"]]
    for name, forms in sums.items():
        functions[f"aggregate {name}"] = {
            "arguments": {v: forms[v] for v in VERDICTS if forms.get(v)},
            "examples": sample[name],
            "differing": {},
        }
    return _text(functions)


def _text(functions: Mapping[str, Any]) -> str:
    kept = {"spark": version("pyspark"), "sail": version("pysail"), "functions": functions}
    return _folded(json.dumps(kept, ensure_ascii=True, indent=1)) + "\n"


def _folded(text: str) -> str:
    """Lists of texts on one line."""
    return re.sub(
        r"\[\s+((?:\"(?:[^\"\\]|\\.)*\",?\s+)+)\]", lambda m: "[" + re.sub(r"\n\s+", " ", m[1]).strip() + "]", text
    )


def example(text: str, outcome: Outcome) -> list[str]:
    """An expression with the values of its columns, Spark's value and Sail's."""
    return [given(text, outcome.row), value(outcome.spark, outcome.kind), value(outcome.sail, outcome.kind)]


def given(text: str, row: int) -> str:
    """An expression with the values its columns have in a row."""
    rows = _tables()[table_of(text)]
    if row < 0:
        return text
    return re.sub(r"(?<![\w'.\\`])[a-z]{1,3}[123](?![\w'])", lambda match: _written(rows, match[0], row), text)


def _written(rows: pa.Table, name: str, row: int) -> str:
    if name not in rows.column_names:
        return name
    return written(rows[name][row].as_py(), str(rows.schema.field(name).type))


def written(item: Any, kind: str = "") -> str:
    """A value as a reader of SQL knows it."""
    match item:
        case None:
            return "NULL"
        case bool():
            return str(item).lower()
        case str():
            return "'" + item.encode("unicode_escape").decode() + "'"
        case bytes():
            return f"X'{item.hex()}'"
        case list():
            return f"array({', '.join(written(part) for part in item)})"
        case date():
            word = "TIMESTAMP" if "timestamp" in kind or hasattr(item, "hour") else "DATE"
            return f"{word} '{str(item).removesuffix('+00:00')}'"
        case _:
            return str(item)


@cache
def _tables() -> dict[str, pa.Table]:
    return tables()


def value(text: str, kind: str) -> str:
    """A value in the words of ``Answers.java`` for people."""
    if text == "!":
        return "an error"
    if text.startswith("!"):
        return f"an error: {text[1:]}"[:LONGEST]
    if text.startswith(("type ", "not asked")) or text == "null":
        return text
    shown = _plain(text, kind)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."


def _plain(text: str, kind: str) -> str:
    parsed = known(kind)
    try:
        if kind == "date":
            return str(date(1970, 1, 1) + timedelta(int(text)))
        if kind in {"timestamp", "timestamp_ntz"}:
            return str(from_ms(int(text) // 1000) + timedelta(microseconds=int(text) % 1000)).removesuffix("+00:00")
    except (OverflowError, ValueError):
        return text
    if parsed is None:
        return text
    text = re.sub(r"(?<![0-9A-Za-z])s((?:[0-9a-f]{2})*)(?![0-9A-Za-z])", lambda m: f"'{_decoded(m[1])}'", text)
    return re.sub(r"(?<![0-9A-Za-z'])f(?=-?(?:\d|NaN|nan|inf|Infinity))", "", text)


def _decoded(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-8", "backslashreplace").encode("unicode_escape").decode()


def write(path: Path, table: Mapping[str, Judged], aggregates: Mapping[tuple[str, str], Outcome]) -> None:
    """The file of the package."""
    path.write_text(text_of(table, aggregates), "utf-8")


def merge(path: Path, table: Mapping[str, Judged], names: Collection[str]) -> None:
    """The file of the package, with some functions as they were compared now.

    Raises:
        ValueError: the file was made with other versions of Spark or Sail.
    """
    before = json.loads(path.read_text("utf-8"))
    made = {"spark": version("pyspark"), "sail": version("pysail")}
    if {engine: before[engine] for engine in made} != made:
        message = f"{path} was made with other versions than {made}. Compare all functions: make parity"
        raise ValueError(message)
    fresh = {name: kept for name, kept in functions_of(table).items() if name in names}
    path.write_text(_text(before["functions"] | fresh), "utf-8")


def counted(table: Mapping[str, Judged]) -> Sequence[tuple[str, int]]:
    """Verdict -> signatures."""
    return [(verdict, sum(one.verdict == verdict for one in table.values())) for verdict in VERDICTS]
