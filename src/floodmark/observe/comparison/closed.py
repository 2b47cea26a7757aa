"""Comparison of two growing outputs by steps: a step compares the cells of event time that have closed since the last step.

In the folder of a comparison, ``windows`` is a Delta table with a row per step and cell (``cells``): rows only on the left, only on the right,
equal, within tolerance and different, and additive sums per column (``sums``). For each cell, the row of its last step counts. Files beside the
table hold the sums of all cells and a bounded number of sample rows; the step in the table's last commit names the files. The commit makes a step
atomic: a process killed before the commit has done nothing, a process killed after the commit everything. ``merging`` compacts the table.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from filelock import FileLock, Timeout

from floodmark.core import crash
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.sql import literal
from floodmark.core.time import NEVER
from floodmark.core.types import Type, parse
from floodmark.lake.folder.storage import write
from floodmark.lake.table import history
from floodmark.lake.table.commits import Compared
from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer
from floodmark.lifecycle.comparison import Comparison, Counts, Sample, SchemaDifference, Step, WindowDifference
from floodmark.observe.comparison import cells, sums
from floodmark.observe.comparison.compare import (
    KINDS,
    How,
    Pairs,
    check,
    common_grain,
    engine,
    read_samples,
    schema_differences,
)
from floodmark.observe.comparison.evidence import LEVEL, SCALED
from floodmark.observe.comparison.merging import merge
from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.tolerance import Within

MINUTE = 60_000
_CELLS = 2000
"""Most cells that one step compares. Further cells follow in further steps."""
_VERSIONS = 50
"""Commits of a side after which a step is made even if nothing has closed, so that the next step has few commits to read."""
_APP = "comparison"
_SIDES = ("l", "r")


@dataclass(slots=True)
class _Known:
    """The result of all steps so far."""

    step: int
    cell: int
    begin: int
    done: int
    versions: tuple[int, int]
    names: tuple[str, str]
    grain: tuple[str, ...]
    types: dict[str, str]
    tolerances: dict[str, tuple[float, float]]
    layouts: dict[str, sums.Layout]
    schema: list[list[str | None]]
    columns: dict[str, sums.Sums] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    differing: int = 0
    windows: list[list[int]] = field(default_factory=list)
    """[cell, start, end, different, only left, only right] of the newest cells that differ."""
    samples: str | None = None
    seconds: float = 0.0

    @staticmethod
    def read(folder: str) -> _Known | None:
        """The result at the last committed step; None before the first step."""
        while True:
            step = _committed(folder)
            if step is None:
                return None
            with suppress(FileNotFoundError):  # another process has committed two steps since
                return _Known.of(json.loads(Path(folder, _totals(step)).read_text()))

    @staticmethod
    def of(value: dict[str, Any]) -> _Known:
        """(value of ``as_json``) -> the result."""
        value = dict(value)
        for name in ("versions", "names", "grain"):
            value[name] = tuple(value[name])
        value["tolerances"] = {n: tuple(bounds) for n, bounds in value["tolerances"].items()}
        value["layouts"] = {n: sums.Layout(**one) for n, one in value["layouts"].items()}
        value["columns"] = {n: sums.Sums.from_json(one) for n, one in value["columns"].items()}
        value["counts"] = Counts(**value["counts"])
        return _Known(**value)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self) | {"columns": {name: one.as_json() for name, one in self.columns.items()}}


def _committed(folder: str) -> int | None:
    path = f"{folder}/windows"
    if not DeltaTable.is_deltatable(path):
        return None
    records = (commit.record for commit in history.every(path))
    return next((one.step for one in records if isinstance(one, Compared)), None)


def _totals(step: int) -> str:
    return f"totals-{step}.json"


@dataclass(slots=True)
class _Cells(Pairs):
    """Pairs of the rows of some cells. The table ``cells`` has the starts of the cells, ms."""

    length: int = MINUTE
    within: str = "true"
    files: dict[str, list[str]] = field(default_factory=dict)

    def reading(self, name: str, side: Side, columns: Sequence[str]) -> str:
        """The statement that makes ``live_l`` or ``live_r``: a table, because a step reads the rows several times."""
        query, _ = side.live(self.connection, columns, None, within=self.within, files=self.files[name])
        start = cells.cell("epoch_ms(_event_time)", self.length)
        return f"CREATE TEMP TABLE live_{name} AS SELECT *, {start} AS __cell FROM ({query})"

    @property
    def places(self) -> tuple[str, str] | None:
        """(start, end) of the cell of a pair, ms, as SQL."""
        start = cells.cell("moment", self.length)
        return start, f"{start} + {self.length}"

    @property
    def window_sums(self) -> tuple[Sequence[str], str]:
        """(sums of each column, as SQL with names; condition), over all pairs that are not equal."""
        parts = ["count(*) FILTER (worst = 1) AS within"]
        for at, name in enumerate(self.values):
            parts += [f"count(*) FILTER (s{at} = 1) AS within_{at}", f"count(*) FILTER (s{at} = 2) AS different_{at}"]
            delta = f"(b{at}::DOUBLE - a{at}::DOUBLE)" if self.left.types[name].is_numeric else "NULL::DOUBLE"
            counted = f"FILTER (l AND r AND isfinite({delta}))"
            parts += [
                f"sum({delta}) {counted} AS shift_{at}",
                f"sum({delta} * {delta}) {counted} AS squares_{at}",
                f"max(abs({delta})) {counted} AS most_{at}",
            ]
        return parts, "true"

    @property
    def shown(self) -> Sequence[tuple[str, str]]:
        """(condition, order) of samples, as SQL: the oldest and the newest pairs of each kind of difference."""
        keys = ", ".join([*(f"g{at}" for at in range(len(self.grain))), "l"])
        return [(kind, f"moment{way}, {keys}") for kind in KINDS for way in ("", " DESC")]


def advance(
    folder: str, left: Side, right: Side, how: How, *, until: int, since: int = NEVER, cell: int = MINUTE
) -> Step | None:
    """Compare the cells that have closed since the last step, and compare again the cells that were revised.

    The rows of a window, or of a cell of event time if rows have no windows, are compared when the whole window or cell lies before ``until``
    and before the progress of both sides. If a side has received rows for a compared cell since, the cell is compared again, and its row and its
    share of the sums are replaced. The cost of a call depends on the rows of these cells, not on the rows compared before.

    A process may be killed at any point: the next call has the same result as without the kill. Two processes at once are refused.

    Args:
        folder: folder of the comparison, on a local disk; the first step makes it.
        left: the left side at its newest version: call ``Side.of`` for each call.
        right: the right side at its newest version.
        how: how to compare; ``upto`` and ``everything`` are ignored. Columns, grain and tolerances must be those of the first step.
        until: event time before which both sides are final, ms: the slower side's watermark minus the allowed lateness.
        since: event time from which on rows are compared, ms, rounded up to a whole cell; by default all rows. Only the first step reads it.
        cell: length of a cell, ms. Only the first step reads it.

    Returns:
        The step, or the sum of several steps; None if there was nothing to compare.

    Raises:
        CapabilityError: CAPABILITY-041, the results cannot be compared by steps.
        LifecycleError: LIFECYCLE-081 to LIFECYCLE-083 as ``compare``; LIFECYCLE-086, rows were removed from a side; LIFECYCLE-087, the
            first step had other settings; LIFECYCLE-088, another process makes a step.
        SetupError: SETUP-052, no room on the disk for data that does not fit into memory.
    """
    with _alone(folder):
        known = _Known.read(folder)
        if known is None:
            known = _begun(left, right, how, cell, since + -since % cell)
        else:
            _check_same(known, _begun(left, right, how, known.cell))
        return _advance(folder, left, right, how, known, until)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Hold the lock of a comparison. The system releases the lock when the process ends, even by a kill."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(Path(folder, "lock"), timeout=0):
            yield
    except Timeout:
        raise beside(folder) from None


def beside(folder: str) -> LifecycleError:
    """The error LIFECYCLE-088 for a second process that compares."""
    fix = "Let one process at a time make its steps."
    got = "another one that compares just now"
    return LifecycleError(f"comparison in {folder}", "one process", got, fix, code="LIFECYCLE-088")


def _advance(folder: str, left: Side, right: Side, how: How, known: _Known, until: int) -> Step | None:
    begun, made = time.monotonic(), None
    behind = min([until, *(side.reached for side in (left, right) if side.reached is not None)])
    behind -= behind % known.cell
    while (step := _step(folder, left, right, how, known, behind, begun)) is not None:
        made = (
            step if made is None else replace(step, cells=made.cells + step.cells, revised=made.revised + step.revised)
        )
        known = _Known.read(folder) or known
        begun = time.monotonic()
        if step.until >= behind:
            break
    return made


def _begun(left: Side, right: Side, how: How, length: int, begin: int = NEVER) -> _Known:
    """The result of a comparison before its first step."""
    where = f"comparison of '{left.name}' with '{right.name}'"
    for side in (left, right):
        if not side.stamped:
            fix = "Compare the two once: floodmark diff"
            raise CapabilityError(
                where,
                "outputs of operators, whose rows have an event time",
                f"'{side.name}', which has none",
                fix,
                code="CAPABILITY-041",
            )
        if side.keys and "window_end" not in side.keys:
            fix = "Compare what holds at one moment: floodmark diff"
            got = f"'{side.name}', whose rows replace earlier ones of the same {', '.join(side.keys)} at any later time"
            raise CapabilityError(
                where, "results that stay once their event time has passed", got, fix, code="CAPABILITY-041"
            )
    grain = common_grain(left, right, how)
    if grain and not {"window_end", "_event_time"} & set(grain):
        grain = (*grain, "_event_time")
    shared = [n for n, kind in left.types.items() if right.types.get(n) == kind and n not in how.without]
    values = [name for name in shared if name not in grain]
    check(left, right, how, (*grain, *values))
    return _Known(
        step=0,
        cell=length,
        begin=begin,
        done=begin,
        versions=(left.table.version(), right.table.version()),
        names=(left.name, right.name),
        grain=grain,
        types={name: str(left.types[name]) for name in values},
        tolerances={name: (bound.absolute, bound.relative) for name, bound in how.tolerances.items()},
        layouts={name: sums.Layout() for name in values},
        schema=[[one.name, one.left, one.right] for one in schema_differences(left, right, how)],
    )


def _check_same(known: _Known, now: _Known) -> None:
    for what in ("grain", "types", "tolerances"):
        before, current = getattr(known, what), getattr(now, what)
        if before != current:
            fix = "Begin a new comparison; what was compared with other columns, keys or tolerances does not add up."
            where = f"comparison of '{now.names[0]}' with '{now.names[1]}', {what}"
            raise LifecycleError(where, f"as begun: {_columns(before)}", _columns(current), fix, code="LIFECYCLE-087")


def _columns(value: Any) -> str:
    return ", ".join(f"{n} {kind}" for n, kind in value.items()) if isinstance(value, Mapping) else ", ".join(value)


def _step(folder: str, left: Side, right: Side, how: How, known: _Known, behind: int, begun: float) -> Step | None:
    sides = dict(zip(_SIDES, (left, right), strict=True))
    where = f"comparison of '{left.name}' with '{right.name}'"
    with engine(how, where) as (connection, scratch):
        files = {name: cells.Files.of(side) for name, side in sides.items()}
        revised: set[int] = set()
        if known.step:
            for (name, side), before in zip(sides.items(), known.versions, strict=True):
                revised.update(cells.revised(connection, side, files[name], before, known.done, known.cell))
        revised = {start for start in revised if start >= known.begin}
        starts: set[int] = set()
        if behind > known.done:
            for name, side in sides.items():
                starts.update(cells.closed(connection, side, files[name], (known.done, behind), known.cell, _CELLS + 1))
        closed = sorted(starts)
        until = max(known.done, behind if len(closed) <= _CELLS else closed[_CELLS])
        closed = closed[:_CELLS]
        versions = (left.table.version(), right.table.version())
        waited = max(now - before for now, before in zip(versions, known.versions, strict=True))
        if not closed and not revised and (not known.step or waited < _VERSIONS):
            return None
        chosen = sorted({*closed, *revised})
        after = replace(known, step=known.step + 1, done=until, versions=versions, names=(left.name, right.name))
        run = _Run(folder, connection, scratch, after, sorted(revised))
        if chosen:
            connection.register("given_cells", pa.table({"start": pa.array(chosen, pa.int64())}))
            connection.execute("CREATE TEMP TABLE cells AS SELECT start FROM given_cells")
            within = cells.chosen(chosen[0], chosen[-1], known.cell)
            held = {name: files[name].holding(chosen, known.cell) for name in sides}
            pairs = _Cells(
                connection,
                left,
                right,
                known.grain,
                tuple(known.types),
                how,
                None,
                scratch,
                length=known.cell,
                within=within,
                files=held,
            )
            pairs.make()
            run.tally(pairs)
        run.commit(begun)
    return Step(
        number=after.step,
        until=until,
        cells=len(closed),
        revised=len(revised),
        counts=after.counts,
        read=sum(len(names) for names in held.values()) if chosen else 0,
    )


@dataclass(slots=True)
class _Run:
    """One step: adds the pairs of its cells to the result, and commits."""

    folder: str
    connection: duckdb.DuckDBPyConnection
    scratch: str
    known: _Known
    revised: list[int]
    tallied: bool = False

    def tally(self, pairs: _Cells) -> None:
        """Sum up the cells, in place of the sums that earlier steps added for the same cells."""
        known, connection = self.known, self.connection
        types = {name: pairs.left.types[name] for name in pairs.values}
        both = "(SELECT * FROM live_l UNION ALL BY NAME SELECT * FROM live_r)"
        known.layouts = {
            name: layout if layout.edges else sums.Layout.of(connection, both, name, types[name])
            for name, layout in known.layouts.items()
        }
        for name in _SIDES:
            connection.execute(
                f"CREATE TEMP TABLE held_{name} AS SELECT {self._held(pairs, types)} FROM live_{name} GROUP BY __cell"
            )
        connection.execute(f"CREATE TEMP TABLE fresh AS {self._fresh(pairs)}")
        counts, differing, columns = sums.summed(connection, "fresh")
        known.counts, known.differing = sums.plus(known.counts, counts, 1), known.differing + differing
        known.columns = {name: known.columns.get(name, sums.Sums()) for name in types}
        for name, column_sums in columns.items():
            known.columns[name].add(column_sums, 1)
        if self.revised:
            self._take_away()
        for name, column_sums in known.columns.items():
            if known.layouts[name].scale is None and column_sums.cells >= SCALED and column_sums.drift_squares > 0:
                known.layouts[name].scale = column_sums.drift_squares / column_sums.cells
        self._windows()
        self._samples(pairs)
        self.tallied = True

    def _held(self, pairs: _Cells, types: Mapping[str, Type]) -> str:
        parts = ["__cell AS cell", "count(*) AS rows"]
        windowed = {"window_start", "window_end"} <= set(pairs.grain)
        parts += [
            f"{'epoch_ms(min(window_start))' if windowed else 'min(__cell)'} AS first",
            f"{'epoch_ms(max(window_end))' if windowed else f'max(__cell) + {pairs.length}'} AS behind",
        ]
        for at, (name, kind) in enumerate(types.items()):
            held = sums.held_parts(name, kind, self.known.layouts[name])
            parts.append("{" + ", ".join(f"'{n}': {part}" for n, part in held.items()) + f"}} AS c{at}")
        return ", ".join(parts)

    def _fresh(self, pairs: _Cells) -> str:
        """The query for the cells' rows in the table of windows."""
        counted = [f"{n}" for n in ("different", "only_left", "only_right", "within")]
        parts, both = [], "(coalesce(l.rows, 0) - coalesce(p.only_left, 0))"
        for at, name in enumerate(pairs.values):
            counted += [f"{own}_{at}" for own in ("within", "different", "shift", "squares")]
            left, right = (f"{side}.c{at}" for side in _SIDES)
            drift = f"({right}.total / {right}.numbers - {left}.total / {left}.numbers)"
            numbers = f"({left}.numbers > 0 AND {right}.numbers > 0)" if pairs.left.types[name].is_numeric else "false"
            nothing = "{'nulls': 0::BIGINT, 'numbers': 0::BIGINT, 'total': 0::DOUBLE, 'squares': 0::DOUBLE, 'least': NULL::DOUBLE, 'greatest': NULL::DOUBLE, 'bins': []::STRUCT(edge DOUBLE, rows BIGINT)[]}"
            parts.append(
                f"{{'name': {literal(name)}, 'pairs': {both}::BIGINT, 'within': coalesce(p.within_{at}, 0)::BIGINT, "
                f"'different': coalesce(p.different_{at}, 0)::BIGINT, 'shift': coalesce(p.shift_{at}, 0)::DOUBLE, "
                f"'squares': coalesce(p.squares_{at}, 0)::DOUBLE, 'most': p.most_{at}::DOUBLE, "
                f"'cells': CASE WHEN {numbers} THEN 1 ELSE 0 END::BIGINT, "
                f"'drift': CASE WHEN {numbers} THEN {drift} ELSE 0 END::DOUBLE, "
                f"'drift_squares': CASE WHEN {numbers} THEN {drift} * {drift} ELSE 0 END::DOUBLE, "
                f"'left': coalesce({left}, {nothing}), 'right': coalesce({right}, {nothing})}}"
            )
        added = ", ".join(f"sum({n}) AS {n}" for n in counted)
        most = "".join(f", max(most_{at}) AS most_{at}" for at in range(len(pairs.values)))
        shape = ", ".join(
            [
                f"{self.known.step}::BIGINT AS step",
                "cells.start AS cell",
                "epoch_ms(coalesce(least(l.first, r.first), cells.start))::TIMESTAMPTZ AS window_start",
                f"epoch_ms(coalesce(greatest(l.behind, r.behind), cells.start + {pairs.length}))::TIMESTAMPTZ AS window_end",
                "(coalesce(l.rows, 0) - coalesce(p.only_left, 0) - coalesce(p.within, 0) - coalesce(p.different, 0))::BIGINT AS equal",
                *(f"coalesce(p.{n}, 0)::BIGINT AS {n}" for n in ("within", "different", "only_left", "only_right")),
                f"[{', '.join(parts)}] AS columns",
            ]
        )
        return (
            f"SELECT {shape} FROM cells LEFT JOIN held_l l ON l.cell = start LEFT JOIN held_r r ON r.cell = start "
            f"LEFT JOIN (SELECT first, {added}{most} FROM windows GROUP BY first) p ON p.first = start"
        )

    def _take_away(self) -> None:
        """Subtract the sums that earlier steps added for the cells that are compared again."""
        known, table = self.known, DeltaTable(f"{self.folder}/windows")
        names = _files_with(table, self.revised)
        if not names:
            return
        listed = ", ".join(literal(f"{self.folder}/windows/{name}") for name in names)
        self.connection.register("given_again", pa.table({"start": pa.array(self.revised, pa.int64())}))
        self.connection.execute(
            f"CREATE TEMP TABLE before AS SELECT * FROM read_parquet([{listed}], hive_partitioning = false) WHERE cell IN (SELECT start FROM given_again) "
            "QUALIFY row_number() OVER (PARTITION BY cell ORDER BY step DESC) = 1"
        )
        counts, differing, columns = sums.summed(self.connection, "before")
        known.counts, known.differing = sums.plus(known.counts, counts, -1), known.differing - differing
        for name, column_sums in columns.items():
            known.columns[name].add(column_sums, -1)

    def _windows(self) -> None:
        """Keep the newest cells that differ: twice as many as are listed, as some may agree later."""
        again = set(self.revised)
        query = (
            "SELECT cell, epoch_ms(window_start), epoch_ms(window_end), different, only_left, only_right FROM fresh "
            f"WHERE different + only_left + only_right > 0 ORDER BY cell DESC LIMIT {2 * _LISTED}"
        )
        fresh = [list(row) for row in self.connection.sql(query).fetchall()]
        unrevised = [row for row in self.known.windows if row[0] not in again]
        self.known.windows = sorted([*fresh, *unrevised], reverse=True)[: 2 * _LISTED]

    def _samples(self, pairs: _Cells) -> None:
        """Write the oldest and the newest rows of each kind of difference, of this step and earlier steps, to a file."""
        each, start = pairs.how.samples, cells.cell("moment", pairs.length)
        fresh = " UNION ALL ".join(
            f"SELECT *, {number // 2} AS kind FROM samples_{number}" for number in range(len(pairs.shown))
        )
        every = f"SELECT DISTINCT ON (kind, {_identity(pairs)}) * FROM ({fresh})"
        if self.known.samples is not None:
            old = f"read_parquet({literal(f'{self.folder}/{self.known.samples}')})"
            every += f" UNION ALL BY NAME SELECT * FROM {old} WHERE {start} NOT IN (SELECT start FROM cells)"
        keys = _identity(pairs)
        query = (
            f"SELECT * FROM ({every}) QUALIFY row_number() OVER (PARTITION BY kind ORDER BY moment, {keys}) <= {each} "
            f"OR row_number() OVER (PARTITION BY kind ORDER BY moment DESC, {keys}) <= {each} ORDER BY kind, moment, {keys}"
        )
        self.known.samples = f"samples-{self.known.step}.parquet"
        self.connection.execute(f"COPY ({query}) TO {literal(f'{self.folder}/{self.known.samples}')} (FORMAT parquet)")

    def commit(self, begun: float) -> None:
        """Write the sums to a file, and append the rows of the cells to the table in a commit whose step names that file."""
        known, path = self.known, f"{self.folder}/windows"
        if not DeltaTable.is_deltatable(path):
            shape = self.connection.sql("SELECT * FROM fresh LIMIT 0").to_arrow_table().schema
            DeltaTable.create(path, shape, mode="ignore")
        crash.point("comparison.before_totals")
        known.seconds += time.monotonic() - begun
        write(f"{self.folder}/{_totals(known.step)}", json.dumps(known.as_json(), separators=(",", ":")).encode())
        crash.point("comparison.before_commit")
        Writer(path).append(lambda: self._written(path), Compared(step=known.step), (_APP, known.step))
        crash.point("comparison.after_commit")
        self._remove()
        crash.point("comparison.after_removal")
        merge(path, known.step, self.connection)

    def _written(self, path: str) -> Written:
        target = Path(path, f"step-{self.known.step}")
        shutil.rmtree(target, ignore_errors=True)  # left by a process that was killed before its commit
        target.mkdir()
        if self.tallied:
            rows, file = "SELECT * FROM fresh ORDER BY cell", literal(f"{target}/cells.parquet")
            self.connection.execute(f"COPY ({rows}) TO {file} (FORMAT parquet, COMPRESSION zstd)")
            crash.point("comparison.after_files")
        return Written(folder=target)

    def _remove(self) -> None:
        """Remove the files of steps before the last two."""
        for file in Path(self.folder).glob("*-*"):
            number = int(file.stem.split("-")[1])
            if file.name != self.known.samples and number < self.known.step - 1:
                file.unlink(missing_ok=True)


_LISTED = 20


def _identity(pairs: _Cells) -> str:
    sides = [f"{side}{at}" for side in "ab" for at in range(len(pairs.values))]
    return ", ".join([*(f"g{at}" for at in range(len(pairs.grain))), "l", "r", *([] if pairs.grain else sides)])


def _files_with(table: DeltaTable, starts: Sequence[int]) -> list[str]:
    """Files of the table of windows that may hold any of the cells."""
    actions = pa.table(table.get_add_actions(flatten=True))
    known = np.asarray(starts, dtype=np.int64)
    low, high = (np.asarray(actions[f"{edge}.cell"].to_numpy(), dtype=np.int64) for edge in ("min", "max"))
    some = np.flatnonzero(np.searchsorted(known, low, side="left") < np.searchsorted(known, high, side="right"))
    names = actions["path"].to_pylist()
    return [names[place] for place in some]


def begun(folder: str, left: Side, right: Side) -> How | None:
    """The settings of a comparison's first step: grain, tolerances and columns left out; None before the first step."""
    known = _Known.read(folder)
    if known is None:
        return None
    tolerances = {name: Within(absolute, relative) for name, (absolute, relative) in known.tolerances.items()}
    shared = [name for name, kind in left.types.items() if right.types.get(name) == kind]
    without = tuple(one for one in shared if one not in {*known.types, *known.grain})
    return How(grain=known.grain, tolerances=tolerances, without=without)


def read_comparison(folder: str) -> Comparison | None:
    """The result of all steps together, in the form of ``compare``; None before the first step.

    The time of a call does not depend on how much was compared. Results that steps cannot add up are absent: the number of distinct values,
    and the most frequent pairs of values. Least and greatest values, and the greatest difference, include rows that were revised since.
    Distributions are compared by bins laid out from the first rows; a distance is at most the true distance.
    """
    while True:
        known = _Known.read(folder)
        if known is None:
            return None
        with suppress(FileNotFoundError):  # another process has committed two steps since
            samples = tuple(_read(folder, known))
            break
    types = {name: parse(kind) for name, kind in known.types.items()}
    listed = known.windows[:_LISTED]
    numbers = sum(kind.is_numeric for kind in types.values())
    return Comparison(
        left=known.names[0],
        right=known.names[1],
        upto=known.done,
        grain=known.grain,
        counts=known.counts,
        schema=tuple(SchemaDifference(name=str(name), left=left, right=right) for name, left, right in known.schema),
        columns=tuple(
            sums.column(name, kind, known.columns.get(name, sums.Sums()), known.layouts[name], LEVEL / max(1, numbers))
            for name, kind in types.items()
        ),
        windows=tuple(
            WindowDifference(start=start, end=end, different=different, only_left=left, only_right=right)
            for _, start, end, different, left, right in listed
        ),
        more_windows=known.differing - len(listed),
        samples=samples,
        seconds=known.seconds,
    )


def _read(folder: str, known: _Known) -> Iterator[Sample]:
    if known.samples is None:
        return
    file = Path(folder, known.samples)
    content = pq.read_table(file)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = "content ORDER BY kind, moment"
        connection.register("content", content)
        yield from read_samples(connection, rows, known.grain, tuple(known.types))
