"""Proof by trying: an operator over rows of a log, bounded against unbounded at random cuts with restarts, in memory.

The kernels, stages and stamps are those of both engines, the expressions those of the embedded one; what is not tried here is Spark.
"""

from __future__ import annotations

import math
import pickle
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from floodmark.core.time import END, NEVER
from floodmark.engines.embedded.memory.rows import STAMP_SCHEMA
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.schema import MARKER, ROW

Answer = Counter[tuple[str, tuple[Any, ...]]]
"""(output, values) -> number of such rows, retractions subtracted."""

Entry = tuple[str, dict[str, Any]]
"""Input and row with its stamps; in order of arrival within each input."""

_TRIES = 6
_RESTARTS = 0.2
_MICRO_BATCHES = 50
_EVALUATIONS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a proof.

    Args:
        rows: rows tried.
        results: rows of the bounded answer.
        cuts: unbounded runs compared with it.
        seed: of the first run that differed; None when none did.
        differences: what it had too much or too little, for people.
        sample: the fewest rows found that still differ.
    """

    rows: int
    results: int
    cuts: int
    seed: int | None = None
    differences: tuple[str, ...] = ()
    sample: tuple[Entry, ...] = ()


def prove(
    operator: Operator,
    entries: Sequence[Entry],
    *,
    cuts: int,
    seed: int = 0,
) -> Proof:
    """Run an operator bounded once and unbounded ``cuts`` times.

    Args:
        operator: any whose windows do not wait for processing time.
        entries: rows of all its inputs.
        cuts: unbounded runs, each cut into micro-batches at random, with restarts.
        seed: of the first; the next have the numbers after it.
    """
    bounded_answer = bounded(operator, entries)
    size = sum(bounded_answer.values())
    for number in range(cuts):
        unbounded_answer = unbounded(operator, entries, seed + number)
        if unbounded_answer != bounded_answer:
            described = differences(bounded_answer, unbounded_answer)
            sample = _smallest(operator, list(entries), seed + number)
            return Proof(
                rows=len(entries),
                results=size,
                cuts=number + 1,
                seed=seed + number,
                differences=described,
                sample=tuple(sample),
            )
    return Proof(rows=len(entries), results=size, cuts=cuts)


def as_test(operator: Operator, failed_proof: Proof) -> str:
    """A pytest file that fails for as long as the sample of a proof differs."""
    rows = "\n".join(f"    ({name!r}, {_literal(row)})," for name, row in failed_proof.sample)
    return _TEST.format(name=operator.name, rows=rows, cuts=_TRIES, seed=failed_proof.seed)


_TEST = '''"""The fewest rows found at which the bounded and the unbounded answer of '{name}' differ."""

from datetime import date, datetime
from decimal import Decimal

from definitions import workspace
from floodmark.testing.proof import prove

ENTRIES = [
{rows}
]


def test_{name}_says_the_same_bounded_and_unbounded():
    found = prove(workspace().operator("{name}"), ENTRIES, cuts={cuts}, seed={seed})
    assert found.seed is None, "\\n".join(found.differences)
'''


def _literal(value: Any) -> str:
    """A value as Python text."""
    match value:
        case datetime():
            return f"datetime.fromisoformat({value.isoformat()!r})"
        case date():
            return f"date.fromisoformat({value.isoformat()!r})"
        case dict():
            return "{" + ", ".join(f"{name!r}: {_literal(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_literal, value)) + "]"
        case float() if not math.isfinite(value):
            return f"float('{value}')"
        case _:
            return repr(value)


def bounded(operator: Operator, entries: Sequence[Entry]) -> Answer:
    """The answer over all rows and the end of input, in one batch."""
    ends = dict.fromkeys((given.name for given in operator.inputs), END)
    return _answer(MemoryRun(operator).batch(tables_of(operator, entries, ends)))


def unbounded(operator: Operator, entries: Sequence[Entry], seed: int) -> Answer:
    """The answer over random micro-batches up to the end of input, with inputs interleaved at random and random restarts from savepoints."""
    rng = random.Random(seed)  # noqa: S311 - to be repeated
    order = _interleaved(entries, rng)
    progress = {
        given.name: progress_of(given, [row for name, row in order if name == given.name]) for given in operator.inputs
    }
    run, done, read, answer = MemoryRun(operator), 0, Counter[str](), Answer()
    wanted = rng.choice([1, 3, 20, 200, 5000])
    while done < len(order):
        size = max(1, round(rng.expovariate(1 / max(wanted, len(order) / _MICRO_BATCHES))))
        part = order[done : done + size]
        done += len(part)
        read.update(name for name, _ in part)
        reached = {name: steps[read[name]] for name, steps in progress.items()}
        answer.update(_answer(run.batch(tables_of(operator, part, reached))))
        if rng.random() < _RESTARTS:
            run = MemoryRun(operator, pickle.loads(pickle.dumps(run.savepoint())))  # noqa: S301 - written one call before
    ends = dict.fromkeys(progress, END)
    answer.update(_answer(run.batch(tables_of(operator, [], ends))))
    return Answer({key: count for key, count in answer.items() if count})


def _interleaved(entries: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """Entries in random order, but for the order of arrival within each input."""
    left = {name: [e for e in entries if e[0] == name][::-1] for name in dict.fromkeys(name for name, _ in entries)}
    if len(left) == 1:
        return list(entries)
    turns = [name for name, rows in left.items() for _ in rows]
    rng.shuffle(turns)
    return [left[name].pop() for name in turns]


def progress_of(input_: Input, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Progress of the input, ms, after 0, 1, 2... of its rows."""
    if input_.upstream is None:
        return [*(row["_watermark"] for row in rows), rows[-1]["_watermark"] if rows else NEVER]
    backwards = [END - 1]
    for row in reversed(rows):
        backwards.append(min(backwards[-1], max(row["_event_time"], row["_watermark"] + 1) - 1))
    return backwards[::-1]


def tables_of(operator: Operator, entries: Sequence[Entry], reached: Mapping[str, int]) -> dict[str, pa.Table]:
    """Input -> its rows as the engines read them, with a marker of its progress unless that is NEVER."""
    tables = {}
    for input_ in operator.inputs:
        rows = [row | {"_progress": NEVER} for name, row in entries if name == input_.name]
        if reached[input_.name] > NEVER:
            rows.append({"_watermark": reached[input_.name], "_progress": reached[input_.name], "_kind": MARKER})
        schema = pa.schema([*arrow_schema(input_.schema), *STAMP_SCHEMA])
        tables[input_.name] = pa.Table.from_pylist(rows, schema=schema)
    return tables


def _answer(outputs: Mapping[str, pa.Table]) -> Answer:
    answer = Answer()
    for name, table in outputs.items():
        answer.update(tally(name, table.drop_columns([n for n in STAMP_SCHEMA.names if n != "_kind"])))
    return answer


def tally(output: str, table: pa.Table) -> Answer:
    """The answer in an output's rows, which have no stamps but ``_kind``."""
    counts = Answer()
    for row in table.to_pylist():
        kind = row.pop("_kind")
        if kind != MARKER:
            counts[output, tuple(_plain(v) for v in row.values())] += 1 if kind == ROW else -1
    return counts


def _plain(value: Any) -> Any:
    """Floats to nine digits, as no engine fixes the order of addition; every NaN as one value."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.9e}")
    if isinstance(value, dict):
        return tuple((name, _plain(one)) for name, one in value.items())
    return tuple(_plain(v) for v in value) if isinstance(value, (list, tuple)) else value


def differences(bounded_answer: Answer, unbounded_answer: Answer) -> tuple[str, ...]:
    """Up to five rows that only the bounded answer has, and up to five that only the unbounded one has, for people."""
    lines = []
    for (output, values), count in sorted((bounded_answer - unbounded_answer).items(), key=repr)[:5]:
        lines.append(f"only bounded, {count}x{f' in {output}' if output else ''}: {', '.join(map(str, values))}")
    for (output, values), count in sorted((unbounded_answer - bounded_answer).items(), key=repr)[:5]:
        lines.append(f"only unbounded, {count}x{f' in {output}' if output else ''}: {', '.join(map(str, values))}")
    return tuple(lines)


def _smallest(operator: Operator, entries: list[Entry], seed: int) -> list[Entry]:
    """The fewest rows found for which the answers differ. Source: Zeller, "Simplifying and isolating failure-inducing input", 2002."""
    left = [_EVALUATIONS]

    def differs(rows: list[Entry]) -> bool:
        wanted = bounded(operator, rows)
        left[0] -= 1
        return any(unbounded(operator, rows, seed + n) != wanted for n in range(_TRIES))

    parts = 2
    while len(entries) > 1 and left[0] > 0:
        size = math.ceil(len(entries) / parts)
        for start in range(0, len(entries), size):
            fewer = entries[:start] + entries[start + size :]
            if fewer and left[0] > 0 and differs(fewer):
                entries, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(entries))
    return entries
