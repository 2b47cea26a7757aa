"""Programs drawn by a seed, with the rows and the cuts they run on, and what must come out of them by the rules as they are written."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from odd_columns import COMPUTED, CONDITIONS, KINDS, PLAIN, POOLS, Expression, Odd
from odd_windows import Windows, draw_windows

from floodmark import Stream, operator
from floodmark.core.time import END, NEVER, from_ms
from floodmark.spec.graph.operator import Operator
from floodmark.spec.windowing.aggregates import LAWS, Builtin
from floodmark.testing.log import Log
from tests.support.aggregate_forms import accepts, declared
from tests.support.oracle_aggregates import OVERFLOW, answer, rank, same, tolerance

Row = dict[str, Any]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Measured:
    """An aggregate of a program."""

    function: str
    argument: Expression
    by: Expression | None = None

    @property
    def builtin(self) -> Builtin:
        """As floodmark declares it."""
        return declared(self.function, self.argument.sql, self.by.sql if self.by else None)

    def of(self, rows: Sequence[Row]) -> Any:
        """Its answer for the rows of a window in order of arrival."""
        values = [self.argument.of(row) for row in rows]
        if self.by is None:
            return answer(self.function, self.argument.kind, values)
        sign = -1 if self.function == "max_by" else 1
        ordered = sorted({rank(by) for by in map(self.by.of, rows) if by is not None})[::sign]
        value = next((v for v, row in zip(values, rows, strict=True) if _is(self.by.of(row), ordered)), None)
        return value + 0.0 if isinstance(value, float) else value

    def slack(self, rows: Sequence[Row]) -> float:
        """What 1e-9 of is allowed."""
        return tolerance(self.function, [self.argument.of(row) for row in rows]) if self._floating else 0.0

    @property
    def _floating(self) -> bool:
        return self.function in {"sum", "mean"}


def _is(by: Any, ordered: Sequence[Any]) -> bool:
    return by is not None and rank(by) == ordered[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One operator, its input and its cuts.

    Args:
        seed: it was drawn with.
        steps: ("filter", "", condition), ("column", name, expression) or ("select", names, None) in order.
        keys: columns.
        windows: their kind and settings.
        measures: column name -> aggregate.
        rows: (event time, columns) in order of arrival; None: the watermark jumps to what all rows before it allow.
        behind: the watermark's bound, ms.
        cuts: entries of the log at which a commit begins.
        restart: the commit before which the stream is stopped and started again.
    """

    seed: int
    steps: tuple[tuple[str, str, Expression | None], ...]
    keys: tuple[str, ...]
    windows: Windows
    measures: dict[str, Measured]
    rows: tuple[tuple[int, Row], ...]
    behind: int
    cuts: tuple[int, ...]
    restart: int

    def operator(self) -> Operator:
        """As a user writes it."""

        @operator(name=f"odd_{self.seed}")
        def program(odd: Stream[Odd]) -> Stream[Any]:
            stream: Any = odd
            for kind, name, expression in self.steps:
                if kind == "filter" and expression:
                    stream = stream.filter(expression.sql)
                elif kind == "column" and expression:
                    stream = stream.with_columns(**{name: expression.sql})
                else:
                    stream = stream.select(*name.split())
            keyed = stream.key_by(*self.keys) if self.keys else stream
            windowed = keyed.window(self.windows.window, **self.windows.settings)
            return windowed.aggregate(**{name: measured.builtin for name, measured in self.measures.items()})

        return program

    def log(self) -> Log:
        """The rows as they land; rows of the year 9999 do not move the watermark beyond those of the others."""
        log = Log(self.operator().inputs[0].schema)
        newest = max((t for t, _ in self.rows if t < FAR), default=0)
        for time, values in self.rows:
            log.row(values, time)
            log.watermark = max(log.watermark, min(time, newest) - self.behind - 1, NEVER)
        log.end()
        return log

    def admitted(self) -> list[tuple[int, int, Row]]:
        """(event time, stamp, columns) of the rows that reach the window."""
        found, newest = [], max((t for t, _ in self.rows if t < FAR), default=0)
        stamp = NEVER
        for time, values in self.rows:
            row: Row | None = dict(values)
            for kind, name, expression in self.steps:
                if row is None:
                    break
                if kind == "filter" and expression:
                    row = row if expression.of(row) is True else None
                elif kind == "column" and expression:
                    row |= {name: expression.of(row)}
                else:
                    row = {column: row[column] for column in name.split()}
            if row is not None:
                found.append((time, stamp, row))
            stamp = max(stamp, min(time, newest) - self.behind - 1, NEVER)
        return found

    def panes(self) -> tuple[list[tuple[Row, list[Row]]], list[Row]]:
        """The last content of every window as (its key and span, its rows), and the rows that came too late."""
        groups: dict[tuple[Any, ...], list[tuple[int, int, Row]]] = {}
        for time, stamp, row in self.admitted():
            groups.setdefault(tuple(_named(row[key]) for key in self.keys), []).append((time, stamp, row))
        panes: list[tuple[Row, list[Row]]] = []
        side: list[Row] = []
        for rows in groups.values():
            head = {key: rows[0][2][key] for key in self.keys}
            contents, late = self.windows.contents(rows)
            for start, end, members in contents:
                bounds = {} if end is None else {"window_start": _instant(start), "window_end": _instant(end)}
                panes.append((head | bounds, members))
            side += late
        return panes, side

    def expected(self) -> tuple[list[Row], list[dict[str, float]], list[Row]]:
        """The rows of the output, how far each may differ, and the rows that came too late."""
        panes, side = self.panes()
        rows = [head | {n: m.of(members) for n, m in self.measures.items()} for head, members in panes]
        return rows, [{n: m.slack(members) for n, m in self.measures.items()} for _, members in panes], side

    @property
    def overflows(self) -> bool:
        """Whether a total of the answer does not fit."""
        return any(value == OVERFLOW for row in self.expected()[0] for value in row.values() if isinstance(value, str))

    def __str__(self) -> str:
        steps = "".join(f".{k}({n}{'=' if n and e else ''}{e.sql if e else ''})" for k, n, e in self.steps)
        measures = ", ".join(f"{n}={m.builtin}" for n, m in self.measures.items())
        return (
            f"odd_{self.seed}: {steps}.key_by{self.keys}.window({self.windows}).aggregate({measures}); cuts {self.cuts}"
        )


LATER = {"mode", "percentile", "percentile_disc", "sum_distinct", "mean_distinct"}
"""Aggregates that came after programs had been drawn, whose fingerprints are recorded."""
FUNCTIONS = [name for name in LAWS if name not in LATER]
"""Aggregates that are drawn; more of them would make other programs of the seeds that are known."""
IN_SQL = ("count", "sum", "min", "max", "mean", "count_distinct")
"""Aggregates that a bounded run computes in SQL, if all of an operator's are among them; those without an order are computed in columns."""
FAR = END - 40 * 86_400_000
"""Event times from here on do not move the watermark."""


def draw_program(seed: int, *, embedded: bool = False) -> Program:
    """A program; the same for the same arguments.

    Args:
        seed: below 10^6.
        embedded: with expressions alone that the embedded engine computes.
    """
    rng = random.Random(seed)
    computed = [e for e in COMPUTED if e.embedded or not embedded]
    steps, columns = _steps(rng, computed)
    arguments = [e for e in PLAIN if e.sql in columns] + [e for e in computed if _reads(e) <= columns.keys()]
    arguments += [_column(name, kind) for name, kind in columns.items() if name not in KINDS]
    keyed = [name for name, kind in columns.items() if name != "n" and (kind != "timestamp" or rng.random() < 0.1)]
    keys = tuple(rng.sample(keyed, min(len(keyed), rng.choice([0, 1, 1, 1, 2]))))
    functions = rng.choice([IN_SQL, [name for name in FUNCTIONS if not LAWS[name].in_order], FUNCTIONS])
    windows = draw_windows(rng, plain=functions is IN_SQL and rng.random() < 0.8)
    rows = _rows(rng, windows.unit)
    entries = len(rows) + 1
    cuts = tuple(sorted(rng.sample(range(1, entries), min(entries - 1, rng.choice([1, 2, 3])))))
    program = Program(
        seed=seed,
        steps=tuple(steps),
        keys=keys,
        windows=windows,
        measures={f"a{k}": _measured(rng, functions, arguments) for k in range(rng.randint(3, 9))},
        rows=tuple(rows),
        behind=rng.choice([0, windows.unit // 2, windows.unit * 2]),
        cuts=cuts,
        restart=rng.randint(1, len(cuts)),
    )
    return _fitting(program, rng)


def _fitting(program: Program, rng: random.Random) -> Program:
    """Totals that do not fit become maxima in nine of ten programs; in the tenth the answer is the error."""
    if program.overflows and rng.random() < 0.1:
        return program
    rows = [row for _, _, row in program.admitted()]
    wild = {n for n, m in program.measures.items() if m.function == "sum" and _may_overflow(m, rows)}
    measures = {n: Measured("max", m.argument) if n in wild else m for n, m in program.measures.items()}
    return replace(program, measures=measures)


def _may_overflow(measured: Measured, rows: Sequence[Row]) -> bool:
    """Whether the total of some of the rows does not fit."""
    values = [v for v in map(measured.argument.of, rows) if v is not None]
    parts = ([v for v in values if v > 0], [v for v in values if v < 0])
    return any(answer("sum", measured.argument.kind, part) == OVERFLOW for part in parts)


def _steps(
    rng: random.Random, computed: Sequence[Expression]
) -> tuple[list[tuple[str, str, Expression | None]], dict[str, str]]:
    """Steps before the window and the columns there are after them."""
    steps: list[tuple[str, str, Expression | None]] = []
    columns = dict(KINDS)
    for number in range(rng.choice([0, 1, 2, 3])):
        kind = rng.choice(["filter", "column", "column", "select"])
        if kind == "select" and number:
            some = [c for c in columns if c in {"n", "at"} or rng.random() < 0.7]
            steps.append(("select", " ".join(some), None))
            columns = {c: columns[c] for c in some}
            continue
        choices = [e for e in (CONDITIONS if kind == "filter" else computed) if _reads(e) <= columns.keys()]
        if kind == "select" or not choices:
            continue
        expression = rng.choice(choices)
        steps.append((kind, "" if kind == "filter" else f"c{number}", expression))
        if kind == "column":
            columns[f"c{number}"] = expression.kind
    return steps, columns


def _column(name: str, kind: str) -> Expression:
    return Expression(name, kind, lambda row: row[name])


def _reads(expression: Expression) -> set[str]:
    return {name for name in KINDS if name in _WORD.findall(expression.sql)}


def _measured(rng: random.Random, functions: Sequence[str], arguments: Sequence[Expression]) -> Measured:
    argument = rng.choice([e for e in arguments if any(accepts(f, e.kind) for f in functions)])
    function = rng.choice([f for f in functions if accepts(f, argument.kind)])
    if not function.endswith("_by"):
        return Measured(function, argument)
    return Measured(function, argument, rng.choice([e for e in arguments if e.kind != "binary"]))


def _rows(rng: random.Random, unit: int) -> list[tuple[int, Row]]:
    """Rows about one base, out of order, with duplicates, and some at both ends of time."""
    base = rng.choice([0, -unit, _ms(2024, 3, 10, 6), _ms(2011, 12, 29, 12), _ms(1936, 6, 30), _ms(9998, 12, 30)])
    pools = {name: rng.sample(pool, rng.randint(2, min(4, len(pool)))) for name, pool in POOLS.items()}
    times = [NEVER, NEVER + rng.randrange(unit), NEVER + unit][: rng.choice([0, 0, 1, 3])]
    step = max(unit // rng.choice([2, 5, 9]), 1)
    for number in range(rng.randint(9, 26)):
        back = rng.choice([0, 0, 0, 0, 1, 2, 5, 12, 30])
        times.append(base + (number - back) * step + rng.choice([0, 0, 1, -1]))
        times += [times[-1]] * rng.choice([0, 0, 0, 1])
    times += rng.sample([END, END - 1, END - unit, END - 9 * 86_400_000, NEVER + 5], rng.choice([0, 0, 1, 3]))
    rows = []
    for number, time in enumerate(min(max(t, NEVER), END) for t in times):
        values = {name: rng.choice(pool) for name, pool in pools.items()}
        rows.append((time, {"at": from_ms(time), "n": number} | values))
    return rows


def _ms(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type]  # year, month, day, hour


def _instant(moment: int) -> datetime:
    """A bound of a window as it is shown."""
    if moment > END:
        return datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    return from_ms(max(moment, NEVER))


def _named(value: Any) -> Any:
    """Values of a key are one: NaN and NaN, 0.0 and -0.0."""
    return repr(value + 0.0) if isinstance(value, float) else repr(value)


def differences(program: Program, outputs: dict[str, Sequence[Row]]) -> list[str]:
    """What an engine gave that the rules do not, in words; empty where all is right.

    Args:
        program: that was run.
        outputs: output name -> last values without stamps.
    """
    wanted, slack, side = program.expected()
    found: list[str] = []
    came = list(outputs[""])
    for row, scales in zip(wanted, slack, strict=True):
        matches = [r for r in came if _row_same(r, row, scales)]
        if matches:
            came.remove(matches[0])
            continue
        heads = [r for r in came if all(_named(r[c]) == _named(v) for c, v in row.items() if c not in program.measures)]
        found.append(f"wanted {row}, there {heads}")
    found += [f"unexpected {row}" for row in came]
    if program.windows.settings.get("late") == "side_output":
        late = list(outputs.get("late", ()))
        for row in side:
            matches = [r for r in late if _row_same(r, row, {}, raw=True)]
            if not matches:
                found.append(f"late row {row['n']} is not aside: {row}")
                continue
            late.remove(matches[0])
        found += [f"aside, but not late: {row}" for row in late]
    return found


def _row_same(left: Row, right: Row, scales: dict[str, float], *, raw: bool = False) -> bool:
    if left.keys() != right.keys():
        return False
    return all(
        _value_same(left[name], value, scales.get(name), raw=raw or name not in scales) for name, value in right.items()
    )


def _value_same(left: Any, right: Any, scale: float | None, *, raw: bool) -> bool:
    if raw:  # keys and late rows: as they came, but for the sign of zero
        return _named(left) == _named(right) if not isinstance(right, datetime) else left == right
    return same(left, right, scale or 0.0)
