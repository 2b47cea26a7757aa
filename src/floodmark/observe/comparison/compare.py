"""Comparison of two sides in DuckDB, which spills to disk: one pass over each side, and a join of only the buckets that differ.

Rows are put into buckets by the hash of their grain, and the hashes of a bucket's rows are summed up per side. Two buckets with the same number of
rows and the same sum hold the same rows (hashes of 64 bits; two different buckets agree with odds of 1 in 2^64). Only rows of the other buckets
are paired: first equal rows, then rows of one grain, in the order of their hashes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from floodmark.core import machine
from floodmark.core.errors import LifecycleError
from floodmark.core.scratch import Scratch
from floodmark.core.sql import literal, quoted
from floodmark.lifecycle.comparison import (
    ColumnDifference,
    Comparison,
    Counts,
    Sample,
    SchemaDifference,
    WindowDifference,
)
from floodmark.observe.comparison.profiles import distances, profiled
from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.tolerance import Within

_BUCKETS = 1 << 16
_SLICE_ROWS, _SLICES = 500_000, 256
"""About how many rows one slice of the buckets has, so that a slice fits into memory; and the most slices."""
_DAY = 86_400_000
KINDS = ("worst = 2", "NOT r", "NOT l")
"""Kinds of differences, as conditions on ``pairs``: different, only left, only right. Each kind has samples of its own."""
_VALUES = 1000
"""Most frequent pairs of values kept per column and slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How two sides are compared.

    Args:
        grain: columns by which rows are paired; by default those of the operator.
        tolerances: column -> by how much its values may differ.
        without: columns that are not compared.
        upto: compare rows before this event time, ms; by default rows before the slower side's progress.
        everything: compare all rows, whatever the progress of the sides.
        samples: rows shown of each kind of difference.
        top: pairs of values shown per column.
        windows: windows listed.
        memory: DuckDB's limit, as ``2GB``.
        spill: folder for data that does not fit into memory; by default the system's folder for temporary files.
    """

    grain: tuple[str, ...] = ()
    tolerances: Mapping[str, Within] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    upto: int | None = None
    everything: bool = False
    samples: int = 5
    top: int = 5
    windows: int = 20
    memory: str = "2GB"
    spill: str | None = None


@dataclass(frozen=True, slots=True)
class _States:
    """Of one column: pairs within the tolerance, pairs that differ, sum of all differences, and the greatest amount of a difference."""

    within: int = 0
    different: int = 0
    total: float = 0.0
    most: float = 0.0

    def plus(self, within: int, different: int, total: float | None, most: float | None) -> _States:
        """The sum with the numbers of another slice."""
        return _States(
            self.within + within, self.different + different, self.total + (total or 0.0), max(self.most, most or 0.0)
        )


def compare(left: Side, right: Side, how: How) -> Comparison:
    """Compare two sides: counts of rows, schema, columns, windows and samples of differences.

    Args:
        left: the side that serves as reference.
        right: the other side.
        how: how to compare.

    Raises:
        LifecycleError: LIFECYCLE-081, a column does not exist; LIFECYCLE-082, rows of the two sides cannot be paired; LIFECYCLE-083, a
            tolerance for a column that is not numeric.
        SetupError: SETUP-052, no room on the disk for data that does not fit into memory.
    """
    begun = time.monotonic()
    grain = common_grain(left, right, how)
    shared = [n for n, kind in left.types.items() if right.types.get(n) == kind and n not in how.without]
    values = [name for name in shared if name not in grain]
    check(left, right, how, (*grain, *values))
    upto = None if how.everything else how.upto if how.upto is not None else _slower(left, right)
    with engine(how, _where(left, right)) as (connection, folder):
        pairs = Pairs(connection, left, right, grain, tuple(values), how, upto, folder)
        pairs.make()
        counts = pairs.counts()
        windows, unlisted = pairs.windows()
        return Comparison(
            left=left.name,
            right=right.name,
            upto=upto,
            grain=grain,
            counts=counts,
            schema=tuple(schema_differences(left, right, how)),
            columns=tuple(pairs.columns(counts)),
            windows=windows,
            more_windows=unlisted,
            samples=tuple(pairs.samples()),
            seconds=time.monotonic() - begun,
        )


def common_grain(left: Side, right: Side, how: How) -> tuple[str, ...]:
    """The columns by which rows of two sides are paired; empty if no columns are known, or a side lacks one of them.

    Raises:
        LifecycleError: LIFECYCLE-081, a column does not exist; LIFECYCLE-082, the two sides have different grains.
    """
    if how.grain:
        for side in (left, right):
            side.check_columns(how.grain, "as a key")
        return how.grain
    if left.grain and right.grain and left.grain != right.grain:
        fix = f"Say by which columns rows belong together: --key {left.grain[0]}"
        where, got = _where(left, right), f"{', '.join(right.grain)} on the right"
        raise LifecycleError(where, f"rows of one grain: {', '.join(left.grain)}", got, fix, code="LIFECYCLE-082")
    grain = left.grain or right.grain
    known = [set(side.types) | ({"_event_time"} if side.stamped else set()) for side in (left, right)]
    return grain if all(set(grain) <= one for one in known) else ()


def check(left: Side, right: Side, how: How, compared: Sequence[str]) -> None:
    """Refuse tolerances and columns that do not fit the sides.

    Args:
        left: one side.
        right: the other side.
        how: settings with tolerances and columns to leave out.
        compared: columns that will be compared, including the grain.

    Raises:
        LifecycleError: LIFECYCLE-081, a column does not exist; LIFECYCLE-082, no column to compare; LIFECYCLE-083, a tolerance for a column
            that is not numeric.
    """
    for side in (left, right):
        side.check_columns(how.tolerances, "with a tolerance")
    left.check_columns(how.without, "to leave out")
    for name in how.tolerances:
        if not left.types[name].is_numeric:
            fix = "Give tolerances to numbers only; leave a column out with --without."
            where, got = f"tolerance of '{name}'", str(left.types[name])
            raise LifecycleError(where, "a column of numbers", got, fix, code="LIFECYCLE-083")
    if not compared:
        fix = "Compare two outputs of one operator, or of two versions of it."
        where, got = _where(left, right), "none of one name and type"
        raise LifecycleError(where, "columns that both have", got, fix, code="LIFECYCLE-082")


def _where(left: Side, right: Side) -> str:
    return f"comparison of '{left.name}' with '{right.name}'"


def _slower(left: Side, right: Side) -> int | None:
    known = [side.reached for side in (left, right) if side.reached is not None]
    return min(known, default=None)


def schema_differences(left: Side, right: Side, how: How) -> Iterator[SchemaDifference]:
    """Columns that one side lacks or has with another type."""
    for name in dict.fromkeys((*left.types, *right.types)):
        types = [None if name not in side.types else str(side.types[name]) for side in (left, right)]
        if types[0] != types[1] and name not in how.without:
            yield SchemaDifference(name=name, left=types[0], right=types[1])


@contextmanager
def engine(how: How, where: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """(connection, spill folder): DuckDB with limited memory, in the time zone UTC. The folder is removed on exit."""
    kinds = (duckdb.Error, OSError)
    with (
        machine.boundary(
            where,
            "floodmark diff, with more --memory, or another --spill",
            kinds,
            lambda error: str(error).splitlines()[0],
        ),
        Scratch(None if how.spill is None else Path(how.spill)) as folder,
        duckdb.connect() as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET memory_limit = '{how.memory}'")
        connection.execute(f"SET temp_directory = {literal(str(folder))}")
        connection.execute(f"SET threads = {max(1, len(os.sched_getaffinity(0)))}")
        connection.execute("SET preserve_insertion_order = false")
        yield connection, str(folder)


@dataclass(slots=True)
class Pairs:
    """Pairs the rows of two sides that differ, slice of the buckets by slice.

    Columns added to a side's own begin with two underscores.

    The table ``pairs`` holds the pairs of one slice that are not equal: ``g0`` ... the columns of the grain, ``a0`` ... and ``b0`` ... the values
    on the left and the right, ``s0`` ... the state of each value (0 equal, 1 within the tolerance, 2 different, 3 one side lacks the row),
    ``worst`` the greatest state, ``l`` and ``r`` whether the side has the row, ``moment`` the event time in ms.
    """

    connection: duckdb.DuckDBPyConnection
    left: Side
    right: Side
    grain: tuple[str, ...]
    values: tuple[str, ...]
    how: How
    upto: int | None
    folder: str
    rows: dict[str, int] = field(default_factory=dict)
    lone: tuple[int, int] = (0, 0)
    worst: tuple[int, int] = (0, 0)
    states: dict[str, _States] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """True if the rows of both sides have an event time."""
        return self.left.stamped and self.right.stamped

    @property
    def own(self) -> str:
        """The columns of the grain and the compared columns, as SQL."""
        return ", ".join(map(quoted, (*self.grain, *self.values)))

    @property
    def key(self) -> str:
        """The hash of the grain, as SQL; the hash of the whole row if there is no grain."""
        return f"hash({', '.join(map(quoted, self.grain)) or self.own})"

    def make(self) -> None:
        """Read both sides, and pair the rows that differ."""
        every = list(dict.fromkeys((*self.grain, *self.values, *(["_event_time"] if self.timed else []))))
        for name, side in (("l", self.left), ("r", self.right)):
            self._do(self.reading(name, side, every))
            self._do(
                f"CREATE TEMP TABLE sums_{name} AS SELECT {self.key} % {_BUCKETS} AS bucket, count(*) AS rows, "
                f"sum(hash({self.own})::HUGEINT) AS hashes FROM live_{name} GROUP BY ALL"
            )
            (self.rows[name],) = self._row(f"SELECT coalesce(sum(rows), 0) FROM sums_{name}")
        self._do(
            "CREATE TEMP TABLE buckets AS SELECT bucket, greatest(sums_l.rows, sums_r.rows) AS rows FROM sums_l "
            "FULL JOIN sums_r USING (bucket) "
            "WHERE sums_l.rows IS DISTINCT FROM sums_r.rows OR sums_l.hashes IS DISTINCT FROM sums_r.hashes"
        )
        (differ,) = self._row("SELECT coalesce(sum(rows), 0) FROM buckets")
        slices = min(_SLICES, differ // _SLICE_ROWS + 1)
        for name in "lr":
            self._divide(name, slices)
        for number in range(slices):
            self._pair(number)
            self._add(first=number == 0, last=slices == 1)
            self._do("DROP TABLE pairs")

    def reading(self, name: str, side: Side, columns: Sequence[str]) -> str:
        """The statement that makes ``live_l`` or ``live_r`` of a side's rows: a table if the query is costly, else a view."""
        query, costly = side.live(self.connection, columns, self.upto)
        return f"CREATE TEMP {'TABLE' if costly else 'VIEW'} live_{name} AS {query}"

    def _divide(self, name: str, slices: int) -> None:
        """Write the rows of the buckets that differ to files of one slice each."""
        self._do(
            f"COPY (SELECT *, {self.key} AS __key, hash({self.own}) AS __whole, {self.key} % {_BUCKETS} % {slices} AS __slice FROM live_{name} "
            f"WHERE {self.key} % {_BUCKETS} IN (SELECT bucket FROM buckets)) TO '{self.folder}/{name}' (FORMAT parquet, PARTITION_BY (__slice))"
        )

    def _pair(self, number: int) -> None:
        for name in "lr":
            files = sorted(Path(self.folder, name).glob(f"__slice={number}/*.parquet"))
            names = ", ".join(literal(str(file)) for file in files)
            if files:
                self._do(
                    f"CREATE OR REPLACE TEMP TABLE rows_{name} AS SELECT * FROM read_parquet([{names}], hive_partitioning = false)"
                )
            else:
                self._do(
                    f"CREATE OR REPLACE TEMP TABLE rows_{name} AS SELECT *, 0::UBIGINT AS __key, 0::UBIGINT AS __whole FROM live_{name} LIMIT 0"
                )
        unique = all(self._row(f"SELECT count(*) = count(DISTINCT __key) FROM rows_{name}")[0] for name in "lr")
        if unique:  # the join drops equal rows
            self._join("rows_l", "rows_r", "a.__key = b.__key")
            return
        for name in "lr":
            self._do(
                f"CREATE OR REPLACE TEMP TABLE numbered_{name} AS SELECT *, row_number() OVER (PARTITION BY __key, __whole) AS __nth FROM rows_{name}"
            )
        for name, other in ("lr", "rl"):
            self._do(
                f"CREATE OR REPLACE TEMP TABLE left_{name} AS SELECT *, row_number() OVER (PARTITION BY __key ORDER BY __whole, __nth) AS __place "
                f"FROM numbered_{name} ANTI JOIN numbered_{other} USING (__key, __whole, __nth)"
            )
        self._join("left_l", "left_r", "a.__key = b.__key AND a.__place = b.__place")

    def _join(self, left: str, right: str, condition: str) -> None:
        both = "a.__key IS NOT NULL AND b.__key IS NOT NULL"
        parts = ["a.__key IS NOT NULL AS l", "b.__key IS NOT NULL AS r"]
        parts += [f"coalesce(a.{quoted(n)}, b.{quoted(n)}) AS g{at}" for at, n in enumerate(self.grain)]
        if self.timed:
            parts.append("epoch_ms(coalesce(a._event_time, b._event_time)) AS moment")
        for at, name in enumerate(self.values):
            a, b = f"a.{quoted(name)}", f"b.{quoted(name)}"
            close = self._close(name, a, b)
            state = f"CASE WHEN NOT ({both}) THEN 3 WHEN {a} IS NOT DISTINCT FROM {b} THEN 0 {close}ELSE 2 END"
            parts += [f"{a} AS a{at}", f"{b} AS b{at}", f"{state} AS s{at}"]
        states = ", ".join(f"s{at}" for at in range(len(self.values)))
        worst = f"greatest({states})" if states else "CASE WHEN l AND r THEN 0 ELSE 3 END"
        self._do(
            f"CREATE TEMP TABLE pairs AS SELECT *, {worst} AS worst FROM (SELECT {', '.join(parts)} FROM {left} a "
            f"FULL JOIN {right} b ON {condition}) WHERE worst > 0"
        )

    def _close(self, name: str, a: str, b: str) -> str:
        """The case of a difference within the tolerance, as SQL; empty if the column has no tolerance."""
        bound = self.how.tolerances.get(name)
        if bound is None:
            return ""
        kind = "HUGEINT" if self.left.types[name].is_integer else "DOUBLE"
        a, b = f"{a}::{kind}", f"{b}::{kind}"
        finite = f"isfinite({a}::DOUBLE) AND isfinite({b}::DOUBLE)"
        most = f"greatest({float(bound.absolute)!r}, {float(bound.relative)!r} * greatest(abs({a}), abs({b}))::DOUBLE)"
        return f"WHEN {finite} AND abs({a} - {b})::DOUBLE <= {most} THEN 1 "

    # ---- results of one slice

    def _add(self, *, first: bool, last: bool) -> None:
        """Count the pairs of a slice, and keep candidates for frequent values, windows and samples."""
        parts = [
            "count(*) FILTER (NOT r)",
            "count(*) FILTER (NOT l)",
            "count(*) FILTER (worst = 1)",
            "count(*) FILTER (worst = 2)",
        ]
        for at, name in enumerate(self.values):
            parts += [f"count(*) FILTER (s{at} = 1)", f"count(*) FILTER (s{at} = 2)", *self._shifts(at, name)]
        left, right, within, different, *states = self._row(f"SELECT {', '.join(parts)} FROM pairs")
        self.lone = (self.lone[0] + left, self.lone[1] + right)
        self.worst = (self.worst[0] + within, self.worst[1] + different)
        for at, name in enumerate(self.values):
            before = self.states.get(name, _States())
            self.states[name] = before.plus(*states[4 * at : 4 * at + 4])
            limit = "" if last else f" ORDER BY pairs DESC LIMIT {_VALUES}"
            self._keep(
                f"top_{at}",
                f"SELECT a{at} AS a, b{at} AS b, count(*) AS pairs FROM pairs WHERE s{at} = 2 GROUP BY ALL{limit}",
                first,
            )
        if self.places:
            start, end = self.places
            sums, counted = self.window_sums
            self._keep(
                "windows",
                f"SELECT {start} AS first, {end} AS behind, count(*) FILTER (worst = 2) AS different, count(*) FILTER (NOT r) AS only_left, "
                f"{''.join(f'{part}, ' for part in sums)}count(*) FILTER (NOT l) AS only_right FROM pairs WHERE {counted} GROUP BY ALL",
                first,
            )
        for number, (kind, order) in enumerate(self.shown):
            self._keep(
                f"samples_{number}",
                f"SELECT * FROM pairs WHERE {kind} ORDER BY {order} LIMIT {self.how.samples}",
                first,
            )

    def _shifts(self, at: int, name: str) -> tuple[str, str]:
        """(sum of the differences of all pairs, greatest amount of a difference), as SQL."""
        if not self.left.types[name].is_numeric:
            return "NULL", "NULL"
        delta = f"(b{at}::DOUBLE - a{at}::DOUBLE)"
        return (
            f"sum({delta}) FILTER (l AND r AND isfinite({delta}))",
            f"max(abs({delta})) FILTER (l AND r AND isfinite({delta}))",
        )

    def _keep(self, table: str, query: str, first: bool) -> None:  # noqa: FBT001 - one caller
        self._do(f"CREATE TEMP TABLE {table} AS {query}" if first else f"INSERT INTO {table} {query}")

    @property
    def window_sums(self) -> tuple[Sequence[str], str]:
        """(sums per window beside the counts, as SQL with names; condition for the pairs that count)."""
        return (), "worst > 1"

    @property
    def shown(self) -> Sequence[tuple[str, str]]:
        """(condition, order) of samples, as SQL: the first pairs in the order become samples."""
        return [(kind, self.order) for kind in KINDS]

    @property
    def order(self) -> str:
        """The order of samples, as SQL."""
        return ", ".join([*(f"g{at}" for at in range(len(self.grain))), *(["moment"] if self.timed else []), "l"])

    @property
    def places(self) -> tuple[str, str] | None:
        """(start, end) of the window of a pair, or of its day, ms, as SQL; None if rows have neither window nor event time."""
        if {"window_start", "window_end"} <= set(self.grain):
            start, end = (f"epoch_ms(g{self.grain.index(name)})" for name in ("window_start", "window_end"))
            return start, end
        day = f"(moment - (moment % {_DAY} + {_DAY}) % {_DAY})"
        return (day, f"{day} + {_DAY}") if self.timed else None

    # ---- results of all slices

    def counts(self) -> Counts:
        """Numbers of rows that are equal, within tolerance, different, only left, only right."""
        (only_left, only_right), (within, different) = self.lone, self.worst
        equal = self.rows["l"] - only_left - within - different
        return Counts(equal=equal, within=within, different=different, only_left=only_left, only_right=only_right)

    def columns(self, counts: Counts) -> Iterator[ColumnDifference]:
        """The difference of each compared column."""
        types = {name: self.left.types[name] for name in self.values}
        lone = counts.only_left or counts.only_right
        moved = {n: kind for n, kind in types.items() if lone or self.states[n].within or self.states[n].different}
        left = profiled(self.connection, "live_l", types)
        right = left | profiled(self.connection, "live_r", moved)
        apart = distances(self.connection, ("live_l", "live_r"), moved, (left, right))
        pairs = counts.equal + counts.within + counts.different
        for at, name in enumerate(self.values):
            state, numeric = self.states[name], types[name].is_numeric and pairs > 0
            yield ColumnDifference(
                name=name,
                type=str(types[name]),
                exact=pairs - state.within - state.different,
                within=state.within,
                different=state.different,
                left=left[name],
                right=right[name],
                shift=state.total / pairs if numeric else None,
                most=state.most if numeric else None,
                distance=apart.get(name, 0.0),
                top=self._top(at) if state.different else (),
            )

    def _top(self, at: int) -> tuple[tuple[Any, Any, int], ...]:
        summed = f"SELECT a, b, sum(pairs)::BIGINT AS pairs FROM top_{at} GROUP BY a, b ORDER BY pairs DESC, a, b LIMIT {self.how.top}"
        return tuple((a, b, count) for a, b, count in self.connection.sql(summed).fetchall())

    def windows(self) -> tuple[tuple[WindowDifference, ...], int]:
        """(windows, or days of event time, with differences, latest first, at most ``how.windows``; number of others)."""
        if not self.places:
            return (), 0
        summed = "SELECT first, behind, sum(different)::BIGINT, sum(only_left)::BIGINT, sum(only_right)::BIGINT FROM windows GROUP BY first, behind"
        (every,) = self._row(f"SELECT count(*) FROM ({summed})")
        rows = self.connection.sql(f"{summed} ORDER BY first DESC, behind DESC LIMIT {self.how.windows}").fetchall()
        listed = tuple(
            WindowDifference(start=start, end=end, different=different, only_left=left, only_right=right)
            for start, end, different, left, right in rows
        )
        return listed, every - len(listed)

    def samples(self) -> Iterator[Sample]:
        """Sample rows of each kind of difference, sorted by grain."""
        for number, (_, order) in enumerate(self.shown):
            rows = f"samples_{number} ORDER BY {order} LIMIT {self.how.samples}"
            yield from read_samples(self.connection, rows, self.grain, self.values)

    def _do(self, statement: str) -> None:
        self.connection.execute(statement)

    def _row(self, query: str) -> tuple[Any, ...]:
        return tuple(self.connection.sql(query).fetchall()[0])


def read_samples(
    connection: duckdb.DuckDBPyConnection, rows: str, grain: Sequence[str], values: Sequence[str]
) -> Iterator[Sample]:
    """Read samples from rows with the columns of ``pairs``.

    Args:
        connection: DuckDB.
        rows: SQL after FROM.
        grain: columns of the grain.
        values: columns that are compared.
    """
    keys = [f"g{at}" for at in range(len(grain))]
    a, b = ([f"{side}{at}" for at in range(len(values))] for side in "ab")
    names, split = (*grain, *values), len(keys) + len(a)
    for has_left, has_right, *cells in connection.sql(
        f"SELECT l, r, {', '.join([*keys, *a, *b])} FROM {rows}"
    ).fetchall():
        common = cells[: len(keys)]
        yield Sample(
            left=dict(zip(names, [*common, *cells[len(keys) : split]], strict=True)) if has_left else None,
            right=dict(zip(names, [*common, *cells[split:]], strict=True)) if has_right else None,
        )
