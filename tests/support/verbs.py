"""Drawn schedules of verbs on a stream and on one that reads it row by row, some killed on the way, and what their tables should say in the end."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import pytest
from deltalake import DeltaTable
from restated import standing
from seeds import seed_of

import floodmark as fm
from floodmark import Operator, Stream, operator
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.upkeep import keep_up
from floodmark.control.streams.saving import check_unneeded
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, PlanError
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.unbounded.begin import begin
from floodmark.engines.upgrading import rebuild, upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import cuts, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.switch import pending
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.values.schema import PARTITION, STAMPS

START = datetime(2020, 1, 1, tzinfo=UTC)
COMMITS, ROWS = 8, 14
"""Landings of the whole log, and rows of each."""
KEYS = ("a", "", None, "é😀")
ADDED = {"double", "triple"}
"""Columns that only some versions have; an upgrade restates what can still be revised."""
REFUSED = {
    "CAPABILITY-002": "part of a window that has no place in event time",
    "EXECUTION-002": "nothing has landed, or been written, yet",
    "EXECUTION-005": "a bounded run of another version has made the table that the reader reads",
    "LIFECYCLE-005": "a bounded run of what the stream is not done with",
    "LIFECYCLE-030": "there is no micro-batch yet",
    "LIFECYCLE-035": "no cut with the reader",
    "LIFECYCLE-036": "the reader was computed anew since",
    "LIFECYCLE-040": "no cut right now",
    "LIFECYCLE-044": "a micro-batch was killed half written, and has to be ended first",
    "PLAN-002": "bounded runs of another version have filled the tables before the stream began",
    "PLAN-011": "the state cannot go on under the other version",
    "STATE-003": "the reader has yet to be upgraded",
}


class Event(fm.Contract):
    """Odd keys and values."""

    at: fm.EventTime
    key: str | None
    value: int
    ratio: float | None
    big: int


def entries(commits: int) -> list[dict[str, Any]]:
    """Every fifth row 25 minutes late, every eleventh two hours."""
    found = []
    for i in range(ROWS * commits):
        late = 120 if i % 11 == 5 else 25 if i % 5 == 3 else 0
        at = START + timedelta(minutes=2 * i - late)
        ratio = (math.nan, -0.0, None, 1.5)[i % 4 if i % 3 else 0]
        found.append({"at": at.isoformat(), "key": KEYS[i % 4], "value": i, "ratio": ratio, "big": 2**63 - 1 - i % 2})
    return found


def source(commits: int, contract: type[fm.Contract] = Event, **values: Any) -> fm.Source:
    """The log of so many landings."""
    connector = fm.Rows([one | {name: made(one) for name, made in values.items()} for one in entries(commits)])
    return fm.Source("events", contract=contract, connector=connector, watermark=fm.BoundedOutOfOrderness("5 minutes"))


Steps = Callable[[Stream], Stream]
BEHIND: dict[str, Steps] = {
    "plain": lambda found: found,
    "double": lambda found: found.with_columns(double="total * 2"),
    "triple": lambda found: found.with_columns(double="total * 2", triple="total * 3"),
}
"""Version -> the steps behind the state."""


def windows(events: Stream, behind: Steps) -> Any:
    """Results that are revised, and rows that are too late."""
    windowed = events.key_by("key").window(fm.Tumbling("10 minutes"), allowed_lateness="30 minutes", late="side_output")
    totals = windowed.aggregate(n=fm.count(), total=fm.sum("value"), big=fm.max("big"), high=fm.max("ratio"))
    return behind(totals)


def sessions(events: Stream, behind: Steps) -> Any:
    """Windows that late rows merge."""
    windowed = events.key_by("key").window(fm.Session("9 minutes"), allowed_lateness="30 minutes")
    return behind(windowed.aggregate(n=fm.count(), total=fm.sum("value")))


def outputs(events: Stream, behind: Steps) -> Any:
    """Two outputs of one state."""
    windowed = events.key_by("key").window(fm.Tumbling("10 minutes"), allowed_lateness="30 minutes")
    totals = windowed.aggregate(n=fm.count(), total=fm.sum("value"))
    return fm.Outputs(all=behind(totals), odd=behind(totals.filter("total % 2 = 1")))


def once(events: Stream, behind: Steps) -> Any:
    """The first row of each remainder within an hour."""
    keyed = events.with_columns(rest="value % 50", total="value").key_by("rest")
    return behind(keyed.deduplicate("1 hour"))


def rows(events: Stream, behind: Steps) -> Any:
    """No state."""
    return behind(events.with_columns(total="value"))


KINDS = {one.__name__: one for one in (windows, sessions, outputs, once, rows)}


def version(kind: str, behind: str) -> Operator:
    def totals(events: Stream[Event]) -> Any:
        return KINDS[kind](events, BEHIND[behind])

    return operator(totals)


def reader(totals: Operator) -> Operator:
    """A stream that counts each row and each retraction."""

    def days(totals: Stream) -> Stream:
        windowed = totals.key_by("key").window(fm.Tumbling("1 day"), allowed_lateness="2 days")
        return windowed.aggregate(results=fm.count(), total=fm.sum("total"))

    return operator(days, inputs={"totals": totals["all"] if totals.outputs[0].name else totals})


class Killed(BaseException):
    """In the stead of SIGKILL."""


RUN = ("embedded", "restate")
POINTS = {
    "run": tuple(p for name in RUN for p in crash.POINTS[name] if "merge" not in p),
    "upgrade": crash.POINTS["upgrade"],
    "rollback": crash.POINTS["switch"],
    "rebuild": crash.POINTS["switch"],
    "bounded": crash.POINTS["bounded"],
    "fork": crash.POINTS["fork"],
    "save": crash.POINTS["savepoint"],
}
OF_SAVEPOINTS = {"rollback", "fork", "prune", "export"}
"""Verbs that take a savepoint."""


@dataclass
class Schedule:
    """One drawn schedule.

    Args:
        engine: of all runs.
        lake: of the streams.
        kind: of the first stream.
        seed: of what is drawn.
    """

    engine: Computing
    lake: Lake
    kind: str
    seed: int
    points: ClassVar[Mapping[str, Sequence[str]]] = POINTS
    refused: ClassVar[Mapping[str, str]] = REFUSED
    landed: int = 0
    behind: str = "plain"
    forks: list[Lake] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    deadly: list[str] = field(default_factory=list)
    left: tuple[str, ...] = ()
    """Readers that the last rollback has left."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def point(self, name: str) -> None:
        """In the stead of ``crash.point``."""
        if name in self.deadly:
            self.deadly.clear()
            raise Killed(name)

    def deployed(self, lake: Lake | None = None) -> Operator:
        """What the stream was started with."""
        found = Timeline.current(lake or self.lake, "totals").identity.deployed()
        for behind in BEHIND if found is not None else ():
            if version(self.kind, behind).version == found.version:
                return version(self.kind, behind)
        return self.version()

    def version(self) -> Operator:
        """The code as it is now."""
        return version(self.kind, self.behind)

    def verbs(self, *, saved: bool) -> list[str]:
        """Those that may be next, the likelier the more often."""
        found = ["run"] * 5 + ["land"] * 3 + ["save"] * 3 + ["upgrade"] * 3 + ["bounded"] * 2
        found += ["begin", "upkeep", "rebuild", "scratch"]
        return found + (["rollback"] * 4 + ["fork"] * 2 + ["prune"] if saved else [])

    def step(self) -> None:
        """One verb; one in eight is killed on the way."""
        made = [one.manifest.id for one in savepoints.savepoints(self.lake, "totals")]
        verbs = self.verbs(saved=bool(made))
        verb = "land" if self.landed == 0 and self.draw.random() < 0.8 else self.draw.choice(verbs)
        if verb in self.points and self.draw.random() < 0.125:
            self.deadly.append(self.draw.choice(self.points[verb]))
        try:
            said = getattr(self, verb)(*([self.draw.choice(made)] if verb in OF_SAVEPOINTS else []))
            self.told.append(f"{verb} {said or ''}")
        except FloodmarkError as error:
            self.told.append(f"{verb} -> {error}")
            if error.code not in self.refused:
                raise
        except Killed as killed:
            self.told.append(f"{verb} killed at {killed}")
            self.killed(verb)
        self.deadly.clear()
        self.finish()

    def killed(self, verb: str) -> None:
        """After a verb that was killed."""
        if verb in {"rebuild", "rollback"} and pending(self.lake) is None:  # nobody was told whom it has left behind
            self.again(("days",) if Timeline.current(self.lake, "days").deployed is not None else ())

    def finish(self) -> None:
        """End a switch that was killed."""
        left = pending(self.lake)
        if left is not None and "--to" in left.again:
            roll_back(self.lake, savepoints.find(self.lake, left.again.split()[-1]), backfills=True)
            self.again(self.left)
        elif left is not None:
            self.again(rebuild(self.engine.run_unbounded, self.version(), self.lake).readers)

    def again(self, readers: tuple[str, ...]) -> None:
        """Compute the reader anew."""
        if readers:
            self.engine.run_unbounded(reader(self.deployed()), self.lake, until_caught_up=True, from_scratch=True)

    # ---- the verbs

    def land(self) -> None:
        self.landed = min(self.landed + 1, COMMITS - 1)
        self.engine.land(source(self.landed), self.lake)

    def run(self) -> str:
        streams = self.draw.choice(((True, True), (True, True), (True, False), (False, True)))
        files = self.draw.choice((None, 1))
        for wanted, one in zip(streams, (self.deployed(), reader(self.deployed())), strict=True):
            if wanted:
                self.engine.run_unbounded(one, self.lake, until_caught_up=True, files_per_batch=files)
        return f"{streams} {files}"

    def begin(self) -> None:
        """A start that is killed at once."""
        one = self.draw.choice((self.deployed(), reader(self.deployed())))
        self.engine.check_stream(one, self.lake)
        begin(one, self.lake)

    def save(self) -> str:
        if self.draw.random() < 0.5:
            return str([one.manifest.id for one in cuts.create_coordinated_savepoints("totals", self.lake)])
        return savepoints.create("totals", self.lake).manifest.id

    def upgrade(self) -> str:
        self.behind = self.draw.choice(list(BEHIND))
        found = upgrade(self.version(), self.lake)
        if Timeline.current(self.lake, "days").deployed is not None:
            upgrade(reader(self.deployed()), self.lake, forward_only=True)
        return f"{self.behind} {found.plan.verdict}"

    def bounded(self) -> str:
        first = self.draw.choice((None, self.draw.randrange(-60, 28 * (self.landed + 1), 30)))
        start = START + timedelta(minutes=first or 0)
        interval = Interval() if first is None else Interval(start=to_ms(start), end=to_ms(start + timedelta(hours=1)))
        one, force = self.draw.choice((self.deployed(), reader(self.deployed()))), self.draw.random() < 0.5
        self.engine.run_bounded(one, self.lake, interval, force=force)
        return f"{one.name} {interval} {force}"

    def upkeep(self) -> None:
        keep_up([self.lake, *self.forks], hours=0, days=0)

    def rebuild(self) -> str:
        self.behind = self.draw.choice(list(BEHIND))
        self.again(rebuild(self.engine.run_unbounded, self.version(), self.lake).readers)
        return self.behind

    def scratch(self) -> str:
        self.behind = self.draw.choice(list(BEHIND))
        one = self.version()
        self.engine.run_unbounded(one, self.lake, until_caught_up=True, from_scratch=True)
        self.again(("days",) if Timeline.current(self.lake, "days").identity.deployed() else ())
        return self.behind

    def rollback(self, made: str) -> str:
        alone = self.draw.random() < 0.2
        begun = Timeline.current(self.lake, "days").identity.deployed() is not None
        self.left = ("days",) if alone and begun else ()
        self.again(roll_back(self.lake, savepoints.find(self.lake, made), backfills=True, alone=alone).left)
        return f"{made} {alone}"

    def fork(self, made: str) -> str:
        fresh, root = self.draw.random() < 0.3, f"{self.lake.root}-fork-{len(self.told)}"
        other = fork(self.lake, savepoints.find(self.lake, made), root, fresh=fresh)
        self.engine.run_unbounded(self.deployed(other), other, until_caught_up=True, files_per_batch=1)
        self.forks += [] if fresh else [other]
        return f"{made} {fresh}"

    def prune(self, made: str) -> str:
        check_unneeded(self.lake, savepoints.find(self.lake, made), None)
        savepoints.delete(savepoints.find(self.lake, made))
        return made

    # ---- the end

    def land_rest(self) -> None:
        """The rest of the log, and its end."""
        for commits in range(max(self.landed, 1), COMMITS + 1):
            self.engine.land(source(commits), self.lake, end=commits == COMMITS)

    def end(self, truth: dict[str, Counter[Any]]) -> None:
        """All of the log, to its end, in the lake and in its forks; the tables are those of one run."""
        for place in (self.lake, *self.forks):
            one = self.deployed(place)
            try:
                self.engine.run_unbounded(one, place, until_caught_up=True, files_per_batch=1)
            except PlanError:  # PLAN-002, and what it says
                self.engine.run_bounded(one, place, Interval(), force=True)
                self.engine.run_unbounded(one, place, until_caught_up=True, files_per_batch=1)
            for output in one.outputs:
                check_output(place, output, truth[output.table])
        days = reader(self.deployed())
        if Timeline.current(self.lake, "days").deployed is not None:
            upgrade(days, self.lake, forward_only=True)
        self.engine.run_unbounded(days, self.lake, until_caught_up=True)
        check_reader(self.lake, self.deployed())


def check_output(lake: Lake, output: Any, truth: Counter[Any]) -> None:
    found = standing(lake.output(output.table))
    assert all(n > 0 for n in found.values()), (lake.root, output.table, [row for row, n in found.items() if n < 0])
    assert without(found) == truth, (lake.root, output.table, without(found) - truth, truth - without(found))
    for row in found:
        values = dict(row[1:])
        assert values.get("double") in {None, values.get("total", 0) * 2}, row
        assert values.get("triple") in {None, values.get("total", 0) * 3}, row
    if output.current is not None:
        current = DeltaTable(lake.output(output.current.table)).to_pyarrow_table()
        names = [name for name in current.column_names if name not in {*STAMPS, PARTITION}]
        there = Counter(tuple((n, v) for n, v in sorted(row.items()) if v is not None) for row in plain(current, names))
        assert there == Counter({row[1:]: n for row, n in found.items()}), (lake.root, output.current.table)


def plain(table: Any, names: list[str]) -> list[dict[str, Any]]:
    """Rows in which NaN is equal to itself."""
    found = table.select(names).to_pylist()
    return [{n: "NaN" if isinstance(v, float) and math.isnan(v) else v for n, v in row.items()} for row in found]


def without(rows: Counter[Any]) -> Counter[Any]:
    """Rows without the columns that only some versions have."""
    found = Counter[Any]()
    for row, n in rows.items():
        found[(row[0], *(one for one in row[1:] if one[0] not in ADDED))] += n
    return found


def check_reader(lake: Lake, totals: Operator) -> None:
    """Each row that stands is counted once."""
    wanted, found = Counter[Any](), Counter[Any]()
    for row, n in standing(lake.output(totals.outputs[0].table)).items():
        values, day = dict(row[1:]), row[0] // 86_400_000
        wanted[values.get("key"), day, "results"] += n
        wanted[values.get("key"), day, "total"] += n * values["total"]
    for row, n in standing(lake.output("days")).items():
        values, day = dict(row[1:]), row[0] // 86_400_000
        assert n == 1, row
        for name in ("results", "total"):
            found[values.get("key"), day, name] += values[name]
    assert +found == +wanted


# ---- schedules in a test

_DRAWN = [pytest.param(kind, None, marks=pytest.mark.soak, id=f"{kind}-drawn-{n}") for kind in KINDS for n in range(12)]


def schedules(*always: str) -> pytest.MarkDecorator:
    """One known schedule of each kind, of which those named run always; ``make soak`` draws others."""
    known = [
        pytest.param(kind, number, marks=[] if kind in always else pytest.mark.soak)
        for number, kind in enumerate(KINDS)
    ]
    return pytest.mark.parametrize(("kind", "seed"), [*known, *_DRAWN])


def drawn(request: pytest.FixtureRequest, seed: int | None) -> int:
    """The seed of a test's schedule; that of FLOODMARK_SEED, to replay one."""
    return int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))


Played = TypeVar("Played", bound=Schedule)


@contextmanager
def played(schedule: Played) -> Iterator[Played]:
    """A schedule after 15 verbs; what fails then or in the block says what was done, and how it is replayed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(crash, "point", schedule.point)
        try:
            for _ in range(15):
                schedule.step()
            yield schedule
        except (AssertionError, FloodmarkError) as error:
            text = "\n".join(schedule.told)
            replay = f"replay {schedule.kind} with FLOODMARK_SEED={schedule.seed}"
            raise AssertionError(f"{replay}\n{text}\n{error}") from error
