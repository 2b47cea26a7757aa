"""Drawn schedules as ``test_verbs``, whose log takes broken rows and its end back, and whose stream moves, is divided, and is read uncommitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from deltalake import DeltaTable
from pydantic import Field
from restated import standing
from verbs import (
    COMMITS,
    POINTS,
    REFUSED,
    ROWS,
    Event,
    Schedule,
    check_output,
    drawn,
    played,
    schedules,
    source,
    version,
)

import floodmark as fm
from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.engines.embedded.state.canonical import export as export_canonical
from floodmark.engines.embedded.state.canonical import import_savepoint as import_canonical
from floodmark.engines.landing.quarantine import check_replay, show
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.ending import end_of
from floodmark.lake.restore.fork import move
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.entries import is_table
from floodmark.spec.values.schema import ROW


class Strict(Event):
    """Refuses every sixth row."""

    big: Annotated[int, Field(le=2**62)]


def strict(commits: int) -> fm.Source:
    """Under the contract that refuses some rows."""
    return source(commits, Strict, big=_big)


def mended(commits: int) -> fm.Source:
    """The same rows, under the contract that takes all of them."""
    return source(commits, big=_big)


def _big(row: Mapping[str, Any]) -> int:
    return 2**62 + (row["value"] % 6 == 1)


@dataclass
class Wide(Schedule):
    """One drawn schedule."""

    points: ClassVar[Mapping[str, Sequence[str]]] = POINTS | {
        "land": crash.POINTS["landing"],
        "replay": crash.POINTS["replay"],
        "ended": ("landing.before_end", "landing.after_end"),
        "reopen": crash.POINTS["reopen"],
        "move": ("savepoint.after_rename", *crash.POINTS["move"], *crash.POINTS["fork"]),
        "export": crash.POINTS["import"],
        "run": (*POINTS["run"], "early.after_merge"),
    }
    refused: ClassVar[Mapping[str, str]] = REFUSED | {
        "LIFECYCLE-011": "the log has ended",
        "LIFECYCLE-013": "a stream or a savepoint has read the end",
        "LIFECYCLE-033": "a savepoint that is imported has not left",
        "LIFECYCLE-042": "the stream has moved",
        "LIFECYCLE-113": "the savepoint that a stream has moved with",
        "LIFECYCLE-043": "others read what a stream writes that should move",
    }
    away: Lake | None = None
    """Where the stream has moved."""
    exported: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.read = self.draw.random() < 0.6
        self.partitions = self.draw.choice((None, fm.Daily("2019-12-30"), fm.Hourly("2019-12-31")))

    def deployed(self, lake: Lake | None = None) -> Operator:
        """Its table of last values is written before or after each commit."""
        return self.shaped(super().deployed(lake))

    def shaped(self, one: Operator) -> Operator:
        """As an asset with partitions has it."""
        early = self.draw.random() < 0.5 and any(output.current for output in one.outputs)
        return replace(one, partitions=self.partitions, isolation="read_uncommitted" if early else "read_committed")

    def version(self) -> Operator:
        return self.shaped(super().version())

    def verbs(self, *, saved: bool) -> list[str]:
        found = [*super().verbs(saved=saved), *["replay"] * 3, "ended", "both", *["move"] * 2]
        found += ["reopen"] * 3 if self.has_ended() else []
        found += ["again_there"] * 2 if self.away is not None else []
        found += ["back"] * 2 if Timeline.current(self.lake, "totals").moved is not None else []
        return found + (["export"] * 2 if saved else [])

    def has_ended(self) -> bool:
        """Whether the log has its end of input."""
        log = self.lake.log("events")
        return is_table(log) and end_of(log, "events") is not None

    def killed(self, verb: str) -> None:
        super().killed(verb)
        if verb == "move" and self.draw.random() < 0.7:
            self.move()

    # ---- the verbs

    def run(self) -> str:
        if self.read:
            return super().run()
        self.engine.run_unbounded(
            self.deployed(), self.lake, until_caught_up=True, files_per_batch=self.draw.choice((None, 1))
        )
        return "alone"

    def begin(self) -> None:
        if self.read:
            super().begin()

    def land(self) -> None:
        self.landed = min(self.landed + 1, COMMITS - 1)
        self.engine.land((strict, mended)[self.draw.random() < 0.2](self.landed), self.lake)

    def replay(self) -> str:
        check_replay(mended(self.landed), self.lake)
        done = self.engine.replay((mended, strict)[self.draw.random() < 0.2](self.landed), self.lake)
        return f"{done.landed} {done.still_broken}"

    def ended(self) -> None:
        self.engine.land(strict(self.landed), self.lake, end=True)

    def reopen(self) -> None:
        self.engine.land(strict(self.landed), self.lake, reopen=True)

    def both(self) -> None:
        """A stream that reads to the end, and is taken back before it."""
        made = savepoints.create("totals", self.lake)
        self.ended()
        self.run()
        roll_back(self.lake, made, backfills=True)
        self.reopen()

    def move(self) -> str:
        """To a lake of its own, or again to the one it was on its way to."""
        moved = Timeline.current(self.lake, "totals").moved
        root = f"{self.lake.root}-away-{len(self.told)}" if moved is None else moved.root
        there, going = move(self.lake, "totals", root)
        self.away = there
        self.again_there()
        return going.savepoint

    def again_there(self) -> None:
        """The stream goes on where it has moved."""
        assert self.away is not None
        self.engine.run_unbounded(self.deployed(self.away), self.away, until_caught_up=True, files_per_batch=1)

    def back(self) -> str:
        """The stream resumes here too."""
        moved = Timeline.current(self.lake, "totals").moved
        assert moved is not None
        roll_back(self.lake, savepoints.find(self.lake, moved.savepoint), backfills=True)
        return moved.savepoint

    def export(self, made: str) -> str:
        """A savepoint leaves the lake, and comes back."""
        self.exported += 1
        folder, found = f"{self.lake.root}-exported-{self.exported}", savepoints.find(self.lake, made)
        canonical, place = self.draw.random() < 0.5, f"{folder}/{made}"
        (export_canonical if canonical else savepoints.export)(found, folder)
        if self.draw.random() < 0.7:
            self.prune(made)
        one = (import_canonical if canonical else savepoints.import_savepoint)(self.lake, place)
        return f"{made} {canonical} {one.id}"

    # ---- the end

    def land_rest(self) -> None:
        """What is still broken is replayed; a log whose end was read stays as it is."""
        try:
            self.reopen()
            self.replay()
            for commits in range(max(self.landed, 1), COMMITS + 1):
                self.engine.land(mended(commits), self.lake)
            self.replay()
            self.engine.land(mended(COMMITS), self.lake, end=True)
        except LifecycleError as error:
            if error.code not in {"LIFECYCLE-011", "LIFECYCLE-013"}:
                raise
            self.told.append(f"the rest -> {error}")
        log, waiting = DeltaTable(self.lake.log("events")).to_pyarrow_table(), show("events", self.lake).rows
        values = [one["value"] for one in log.select(["_kind", "value"]).to_pylist() if one["_kind"] == ROW]
        self.told.append(f"{len(values)} rows, {waiting} in quarantine")
        assert len(values) == len(set(values)), sorted(one for one, n in Counter(values).items() if n > 1)
        assert len(values) + waiting == COMMITS * ROWS or self.told[-2].startswith("the rest"), values

    def truth(self) -> dict[str, Counter[Any]]:
        """What stands in each output of one bounded run over the log as it is."""
        lake, one = Lake(f"{self.lake.root}-truth", logs=self.lake.root), version(self.kind, "plain")
        self.engine.run_bounded(one, lake, Interval())
        return {output.table: standing(lake.output(output.table)) for output in one.outputs}

    def end_all(self) -> None:
        """As ``end``, also where the stream has moved; it comes back then."""
        self.land_rest()
        truth = self.truth()
        if self.away is not None:
            self.again_there()
            for output in self.deployed(self.away).outputs:
                check_output(self.away, output, truth[output.table])
        if Timeline.current(self.lake, "totals").moved is not None:
            self.back()
        self.end(truth)


@pytest.mark.feature("V1", "V3", "V4", "K11")
@schedules("outputs", "sessions")
@pytest.mark.few(1)
def test_whatever_comes_after_what(
    embedded: Computing, tmp_path: Path, request: pytest.FixtureRequest, kind: str, seed: int | None
) -> None:
    with played(Wide(embedded, Lake(str(tmp_path / "lake")), kind, drawn(request, seed))) as schedule:
        schedule.end_all()
