"""The books' streams through kills, on machines that share nothing but the lake: state, positions and outputs go on together."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import book_process
import forked
import pytest
from book_process import OPERATORS
from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.time import from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Engine
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

pytestmark = pytest.mark.engines("embedded")
POINTS = ("embedded.after_files", "embedded.after_state", "embedded.after_commit")
"""Rows are written, and are nowhere yet; the state is durable, the tables lack its rows; the tables have them."""

Numbers = Sequence[tuple[int, str, int]]


class Machines:
    """Processes that run a stream, each on a machine of its own: what it has beside the lake is gone with it."""

    def __init__(self, engine: Engine, lake: Lake, code: Operator, folder: Path) -> None:
        self.engine, self.lake, self.code, self.folder = engine, lake, code, folder

    def run(self, at: str = "") -> None:
        """Run until caught up, or until it is killed at a point."""
        machine = self.folder / "machine"
        machine.mkdir()
        environment = {**os.environ, crash.VARIABLE: at, "TMPDIR": str(machine), "HOME": str(machine)}
        command = [sys.executable, book_process.__file__, self.lake.root, self.code.name, self.engine]
        done = forked.run(command, env=environment, cwd=machine)
        shutil.rmtree(machine)
        assert done.returncode == (-signal.SIGKILL if at else 0), done.stderr


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def log_of(code: Operator, rows: Numbers, behind: int = 50) -> Log:
    log = Log(code.inputs[0].schema)
    log.rows([{"at": from_ms(time), "key": key, "value": value} for time, key, value in rows], "at", behind)
    log.end()
    return log


def seen(lake: Lake, code: Operator, *columns: str, output: str = "") -> Counter[tuple[object, ...]]:
    """What a reader sees now."""
    table = outputs(lake, code).get(output)
    rows = [] if table is None else table.to_pylist()
    return Counter(tuple(map(plain, (row[name] for name in columns))) for row in rows if row["_kind"] == ROW)


def plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else round(value, 9) if isinstance(value, float) else value


@pytest.mark.feature("K4", "K14", "F7", "F12", "Y9")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.few(1)
def test_sums_of_a_b_c_are_4_5_3_and_each_output_is_there_once(
    engine_name: Engine, lake: Lake, tmp_path: Path, point: str
) -> None:
    """b2 b3 c1, the barrier, a2 a2 c2 and a kill: what came behind the barrier is processed again, and written once."""
    code = OPERATORS["running_sums"]
    log = log_of(code, [(1, "b", 2), (2, "b", 3), (3, "c", 1), (4, "a", 2), (5, "a", 2), (6, "c", 2)])
    machines = Machines(engine_name, lake, code, tmp_path)
    land(lake, code, log, 0, 3)
    machines.run()
    before = Counter([("b", 2), ("b", 5), ("c", 1)])
    assert seen(lake, code, "key", "total") == before
    land(lake, code, log, 3)
    machines.run(point)
    whole = before + Counter([("a", 2), ("a", 4), ("c", 3)])
    assert seen(lake, code, "key", "total") == (whole if point == POINTS[2] else before)
    machines.run()
    assert seen(lake, code, "key", "total") == whole


@pytest.mark.feature("F1")
def test_a_stream_killed_behind_offset_five_reads_the_sixth_again(
    engine_name: Engine, lake: Lake, tmp_path: Path
) -> None:
    code = OPERATORS["parity_of_one"]
    log = log_of(code, [(n, "k", n) for n in range(1, 8)])
    machines = Machines(engine_name, lake, code, tmp_path)
    land(lake, code, log, 0, 5)
    machines.run()
    assert last(lake, code) == {"odd": 9, "even": 6}
    land(lake, code, log, 5)
    machines.run(POINTS[0])
    assert last(lake, code) == {"odd": 9, "even": 6}
    machines.run()
    assert last(lake, code) == {"odd": 16, "even": 12}
    assert sorted(seen(lake, code, "total").elements()) == [(n,) for n in (1, 2, 4, 6, 9, 12, 16)]


@pytest.mark.feature("F2")
def test_two_sources_go_on_from_offsets_three_and_four(engine_name: Engine, lake: Lake, tmp_path: Path) -> None:
    code = OPERATORS["parity_of_two"]
    machines = Machines(engine_name, lake, code, tmp_path)
    left = log_of(code, [(n, "k", value) for n, value in enumerate([1, 2, 3, 5])])
    right = log_of(code, [(n, "k", value) for n, value in enumerate([1, 2, 3, 4, 6])])
    land(lake, code, left, 0, 3, name="left")
    land(lake, code, right, 0, 4, name="right")
    machines.run()
    assert last(lake, code) == {"odd": 8, "even": 8}
    land(lake, code, left, 3, name="left")
    land(lake, code, right, 4, name="right")
    machines.run(POINTS[0])
    assert last(lake, code) == {"odd": 8, "even": 8}
    machines.run()
    assert last(lake, code) == {"odd": 13, "even": 14}


def last(lake: Lake, code: Operator) -> dict[object, object]:
    """The greatest sum of each parity, which is the last one."""
    return dict(sorted(seen(lake, code, "parity", "total")))  # type: ignore[arg-type]  # pairs


def numbers(seed: int) -> list[tuple[int, str, int]]:
    rng = random.Random(seed)
    return [(n * 3 - rng.randrange(6), rng.choice("abc"), rng.randrange(100)) for n in range(90)]


def remembered(rows: Numbers) -> Iterator[tuple[object, ...]]:
    """(key, row, rises, mean, history) from all rows so far, each time anew."""
    for place, (_, key, _) in enumerate(rows):
        mine = [value for _, k, value in rows[: place + 1] if k == key]
        text = "".join("l" if v < 30 else "h" if v > 70 else "" for v in mine)
        rises = sum(text[: n + 1].endswith("lh") for n in range(len(text)))
        yield key, len(mine), rises, round(sum(mine) / len(mine), 9), tuple(mine[-5:])


@pytest.mark.feature("K13", "F14")
def test_patterns_models_and_histories_survive_kills_and_every_output_is_exactly_once(
    engine_name: Engine, lake: Lake, tmp_path: Path
) -> None:
    """Measured at the output and its side output: no row is ever seen twice, and in the end none is missing."""
    code, rows = OPERATORS["remembering"], numbers(4)
    log, machines = log_of(code, rows), Machines(engine_name, lake, code, tmp_path)
    for first, stop in pairwise((0, 31, 62, len(log.entries))):
        land(lake, code, log, first, stop)
    wanted = Counter(remembered(rows))
    thirds = Counter(
        (key, row) for (key, row, *_), (_, _, value) in zip(remembered(rows), rows, strict=True) if value % 3 == 0
    )
    columns = ("key", "row", "rises", "mean", "history")
    for point in POINTS:
        machines.run(point)
        assert seen(lake, code, *columns) <= wanted
        assert seen(lake, code, "key", "row", output="thirds") <= thirds
    machines.run()
    assert seen(lake, code, *columns) == wanted
    assert seen(lake, code, "key", "row", output="thirds") == thirds


@pytest.mark.feature("K13")
def test_open_windows_survive_kills(engine_name: Engine, lake: Lake, tmp_path: Path) -> None:
    code, rows = OPERATORS["sessions"], numbers(5)
    log, machines = log_of(code, rows), Machines(engine_name, lake, code, tmp_path)
    for first, stop in pairwise((0, 31, 62, len(log.entries))):
        land(lake, code, log, first, stop)
    for point in POINTS[:2]:
        machines.run(point)
    machines.run()
    wanted = Counter[tuple[object, ...]]()
    for key in "abc":
        mine = sorted((time, value) for time, k, value in rows if k == key)
        session = [mine[0]]
        for earlier, later in [*pairwise(mine), (mine[-1], None)]:
            if later is None or later[0] > earlier[0] + 10:
                wanted[key, len(session), sum(value for _, value in session)] += 1
                session = []
            session += [] if later is None else [later]
    assert seen(lake, code, "key", "n", "total") == wanted
    assert any(n > 5 for _, n, _ in wanted)  # type: ignore[operator]  # numbers


@pytest.mark.feature("F14", "E2", "E4")
def test_values_shown_before_their_commit_are_at_least_once(engine_name: Engine, lake: Lake, tmp_path: Path) -> None:
    """Measured at the table of last values: it says what is not committed, is told it again, and ends where the changelog does."""
    code, rows = OPERATORS["shown_early"], numbers(6)
    log, machines = log_of(code, rows), Machines(engine_name, lake, code, tmp_path)
    land(lake, code, log, 0, 40)
    machines.run()
    land(lake, code, log, 40)
    before = totals(lake, code)
    assert current(lake, code) == before
    machines.run("early.after_merge")
    assert totals(lake, code) == before
    shown = current(lake, code)
    assert shown != before
    machines.run()
    wanted = {key: sum(value for _, k, value in rows if k == key) for key in "abc"}
    assert shown == current(lake, code) == totals(lake, code) == wanted


def totals(lake: Lake, code: Operator) -> dict[object, object]:
    """The last value of each key by the changelog: sums only grow."""
    return dict(sorted(seen(lake, code, "key", "total")))  # type: ignore[arg-type]  # pairs


def current(lake: Lake, code: Operator) -> dict[object, object]:
    """The table of last values."""
    found = code.outputs[0].current
    assert found is not None
    rows = DeltaTable(lake.output(found.table)).to_pyarrow_table().to_pylist()
    return {row["key"]: row["total"] for row in rows}


@pytest.mark.feature("D2")
def test_a_new_reader_begins_at_the_first_row_and_nobody_notices(
    engine_name: Engine, lake: Lake, tmp_path: Path
) -> None:
    """The rows were landed once, before the reader was there: the log, the other's output and its checkpoint stay as they are."""
    first, second, rows = OPERATORS["sessions"], OPERATORS["remembering"], numbers(7)
    log = log_of(first, rows)
    land(lake, first, log, 0, 45)
    land(lake, first, log, 45)
    Machines(engine_name, lake, first, tmp_path).run()
    paths = [lake.input(first.inputs[0]), lake.output(first.name)]
    before = [DeltaTable(path).version() for path in paths]
    files = {path: path.stat().st_mtime_ns for path in Path(lake.root).rglob("*") if path.is_file()}
    Machines(engine_name, lake, second, tmp_path).run()
    assert [DeltaTable(path).version() for path in paths] == before
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert seen(lake, second, "key", "row", "rises", "mean", "history") == Counter(remembered(rows))
