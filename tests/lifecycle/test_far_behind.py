"""A stream far behind on the output of another one, or that begins on one whose old files are gone, ends as one that never stopped.

It reads the files that are there in order, some in each micro-batch, whoever has merged them and removed the old ones.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from events import disorder
from streams import ONCE, VISITS, WATCHED, WINDOWED

from floodmark import Operator, Stream, Tumbling, count, min, operator, sum
from floodmark.control.processes.engine import Computing
from floodmark.engines.embedded.unbounded import inputs as of_embedded
from floodmark.engines.spark.unbounded import inputs as of_spark
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.stream.timeline import Timeline, positions_at
from floodmark.lake.writing.compaction import compact, of_output
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

ROWS, CUTS, SMALL = 160, 20, 20_000
VALUES = {WINDOWED.name: "total", VISITS.name: "total", WATCHED.name: "seen", ONCE.name: "value"}


def reader_of(upstream: Operator, name: str = "reader") -> Operator:
    """Sums of what another stream has written, which are revised where that is."""
    value = VALUES[upstream.name]

    def summed(results: Stream) -> Stream:
        window = results.key_by("key").window(Tumbling("20 minutes"), allowed_lateness="30 minutes", late="side_output")
        return window.aggregate(n=count(), all=sum(value), least=min(value))

    return operator(summed, name=name, inputs={"results": upstream})


class Behind:
    """A stream of the embedded engine and its reader of any; the reader stops now and then, and the output it reads is merged meanwhile."""

    def __init__(self, embedded: Computing, engine: Computing, root: Path, upstream: Operator, seed: int) -> None:
        self.embedded, self.engine, self.draw, self.upstream = embedded, engine, random.Random(seed), upstream
        self.lake, self.truth, self.reader = Lake(str(root / "lake")), Lake(str(root / "truth")), reader_of(upstream)
        self.log, self.landed = disorder(upstream, seed, ROWS), 0
        self.in_files = False

    def go_on(self, cuts: int) -> None:
        """The first stream takes some of its log, each part in a micro-batch; in the other lake its reader follows at once."""
        for _ in range(cuts):
            size = len(self.log.entries)
            if self.landed >= size:
                break
            until = self.landed + size // CUTS + 1
            for lake in (self.lake, self.truth):
                land(lake, self.upstream, self.log, self.landed, until)
                self.embedded.run_unbounded(self.upstream, lake, until_caught_up=True)
            self.landed = until
        self.embedded.run_unbounded(self.reader, self.truth, until_caught_up=True)

    def read(self, code: Operator, batches: int, files: int = 1) -> None:
        """So many micro-batches."""
        stop, done = threading.Event(), []

        def on_batch(info: Any) -> None:
            done.append(info)
            if len(done) >= batches:
                stop.set()

        options: dict[str, Any] = {"files_per_batch": files, "stop": stop, "on_batch": on_batch}
        self.engine.run_unbounded(code, self.lake, until_caught_up=True, **options)
        timeline = Timeline.current(self.lake, code.name)
        places = positions_at(timeline, timeline.checkpoint.last_committed())
        self.in_files |= any(place.snapshot is not None for place in places.values())

    def merge(self) -> None:
        """The output becomes fewer files, but not one."""
        compact(self.lake.output(self.upstream.name), SMALL, of_output)

    def vacuum(self) -> None:
        """A stranger's, of all files that the newest version has not."""
        table = DeltaTable(self.lake.output(self.upstream.name))
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def check(self, code: Operator) -> None:
        """The reader ends with what the one has that never stopped, row by row but for when it was told."""
        self.engine.run_unbounded(code, self.lake, until_caught_up=True)
        found, expected = outputs(self.lake, code), outputs(self.truth, self.reader)
        assert {name: final([table]) for name, table in found.items()} == {
            name: final([table]) for name, table in expected.items()
        }
        assert final([expected[""]])


@pytest.fixture(params=[1, 10])
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Commits from which on a stream goes on with files."""
    for inputs in (of_embedded, of_spark):
        monkeypatch.setattr(inputs, "FAR_BEHIND", request.param)
    return int(request.param)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("far", [4], indirect=True)
def test_it_goes_on_with_the_files_that_are_there(
    embedded: Computing, engine: Computing, tmp_path: Path, far: int
) -> None:
    case = Behind(embedded, engine, tmp_path, WINDOWED, 1)
    case.go_on(4)
    engine.run_unbounded(case.reader, case.lake, until_caught_up=True)
    case.go_on(2)
    case.read(case.reader, 1)
    assert not case.in_files
    case.go_on(8)
    case.merge()
    case.vacuum()
    case.read(case.reader, 1)
    assert case.in_files
    case.go_on(3)
    case.merge()
    case.vacuum()  # also of what the reader stands in the middle of
    case.read(case.reader, 1)
    late = reader_of(case.upstream, "late")
    case.read(late, 1)
    case.go_on(CUTS)
    case.merge()
    maintain(case.lake, hours=0)
    case.check(case.reader)
    case.check(late)


@pytest.mark.engines(soak=("embedded", "spark"))
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("upstream", [WINDOWED, VISITS, WATCHED, ONCE], ids=lambda one: one.name)
@pytest.mark.parametrize("seed", range(6))
def test_it_ends_as_one_that_never_stopped(
    embedded: Computing, engine: Computing, tmp_path: Path, far: int, upstream: Operator, seed: int
) -> None:
    case = Behind(embedded, engine, tmp_path, upstream, seed * 100 + far)
    late = reader_of(upstream, "late")
    case.go_on(case.draw.choice([1, 3]))
    case.read(case.reader, 1)
    ways = {
        case.merge: 3,
        case.vacuum: 1,
        lambda: maintain(case.lake, hours=0): 1,
        lambda: case.go_on(case.draw.choice([1, 3, 6])): 4,
        lambda: case.read(case.reader, case.draw.choice([1, 2]), case.draw.choice([1, 2])): 2,
        lambda: case.read(late, 1): 0.7,
    }
    for _ in range(14):
        case.draw.choices(list(ways), list(ways.values()))[0]()
        if case.draw.random() < 0.5:
            case.merge()  # or what the vacuum removes would be in no newer file: it is in some
    case.go_on(CUTS)
    case.merge()
    case.check(case.reader)
    case.check(late)
