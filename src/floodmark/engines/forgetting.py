"""Forgetting of keys: their rows leave logs and quarantines; what was computed from these logs is computed anew, and all older copies are removed.

The new results replace the old ones in one commit per table, as in a rebuild. Older savepoints of the streams hold the rows in their state and in the
versions they restore, so they are removed; each stream that had one gets a new one.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder import storage
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import data_files, exclusive
from floodmark.lake.folder.paths import QUARANTINE, Lake
from floodmark.lake.forgetting import statistics
from floodmark.lake.forgetting.erasure import erase, matching_rows
from floodmark.lake.forgetting.keys import ForgetJournal, ForgottenKey
from floodmark.lake.forgetting.matching import Matching, matchings
from floodmark.lake.forgetting.search import Searched, search
from floodmark.lake.maintenance.vacuum import vacuum
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.readers import places
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import become, pending, perform, refuse_another, refuse_moved, stopped
from floodmark.lake.results import coverage, frozen
from floodmark.lake.stream.timeline import Timeline, streams
from floodmark.lake.table import entries, origin
from floodmark.lake.table.sequences import in_order
from floodmark.lifecycle.coverage import Entry
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.steps import Compute, Discard, Erase, Purge, Step, take
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.values.run import BatchInfo, RunResult

_WAIT_SECONDS = 60
"""Longest wait for upkeep, a rollback or a fork."""
_AGAIN = "floodmark forget"


class Runs(Protocol):
    """The runs of an engine, with its session."""

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """Run an operator as a stream."""
        ...

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """Compute an interval of an operator."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """What forgetting some keys means in a lake.

    Args:
        lake: the lake.
        keys: the keys.
        sources: the keys of each source whose log has some of their columns.
        operators: operators with results of these logs, directly or through other operators; upstream first.
        rows: log or quarantine -> number of rows that have a key.
        journal: of a forgetting of the same keys that was begun and not finished; None if there is none.
    """

    lake: Lake
    keys: tuple[ForgottenKey, ...]
    sources: tuple[Matching, ...]
    operators: tuple[Operator, ...]
    rows: dict[str, int]
    journal: ForgetJournal | None = None

    @property
    def due(self) -> bool:
        """True if there is something to do."""
        return self.journal is not None or any(self.rows.values())

    @property
    def saved(self) -> dict[str, list[Savepoint]]:
        """Operator -> its savepoints, oldest first; without operators that have none."""
        made = {operator.name: savepoints.savepoints(self.lake, operator.name) for operator in self.operators}
        return {name: some for name, some in made.items() if some}

    def steps(self) -> list[Step]:
        """The steps that are left."""
        if not self.due:
            return []
        left = [one for one in self.operators if self.journal is None or one.name in self.journal.due]
        return [
            Erase(tables=tuple(self.tables_of_rows)),
            *(Compute(operator=one.name, version=one.version) for one in left),
            *(Discard(operator=name, savepoints=len(some)) for name, some in self.saved.items()),
            Purge(tables=tuple(self.tables)),
        ]

    @property
    def tables_of_rows(self) -> dict[str, str]:
        """Log or quarantine -> its path."""
        paths = dict[str, str]()
        for source in (matching.source for matching in self.sources):
            paths[source] = self.lake.log(source)
            paths[f"{source}{QUARANTINE}"] = self.lake.quarantine(source)
        return {name: path for name, path in paths.items() if name in self.rows}

    @property
    def tables(self) -> dict[str, str]:
        """Log, quarantine or output -> its path, for all tables that may hold a row of a key."""
        outputs = [
            table.table
            for operator in self.operators
            for output in operator.outputs
            for table in (output, output.current)
            if table is not None
        ]
        there = {name: path for name in outputs if entries.is_table(path := self.lake.output(name))}
        return self.tables_of_rows | there


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The result of forgetting.

    Args:
        rows: log or quarantine -> number of rows removed.
        operators: operators whose results were computed anew.
        deleted: ids of the savepoints that were removed.
        made: ids of the savepoints that were made, one for each stream that had some.
        searched: the search of all files of the lake afterwards.
        restated: operator -> intervals that bounded runs had restated beside its stream, and that are as the stream computes them now.
    """

    rows: dict[str, int]
    searched: Searched
    operators: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    restated: dict[str, list[Interval]] = field(default_factory=dict)


def look(
    sources: Sequence[Source], operators: Sequence[Operator], lake: Lake, keys: Sequence[ForgottenKey]
) -> Forgetting:
    """What forgetting some keys would do. Changes nothing.

    Args:
        sources: of the workspace.
        operators: of the workspace, upstream first.
        lake: lake of the workspace.
        keys: the keys.

    Raises:
        CapabilityError: CAPABILITY-110, the lake is in a bucket.
        LifecycleError: LIFECYCLE-291 another forgetting is unfinished, LIFECYCLE-292 no source has a column, LIFECYCLE-293 a value has another type,
            LIFECYCLE-034 a rollback or rebuild is unfinished, LIFECYCLE-042 a stream has moved, LIFECYCLE-201 results are frozen, LIFECYCLE-294 to
            LIFECYCLE-300 the lake has readers or copies that would keep the rows.
    """
    if not lake.is_local:
        fix = "A bucket keeps files of state that savepoints share for a week, and may keep old versions of objects. Land the source without the rows into a new lake."
        raise CapabilityError(f"lake {lake.root}", "a lake on a disk", "one in a bucket", fix, code="CAPABILITY-110")
    content = storage.read(_journal(lake))
    journal = None if content is None else ForgetJournal.of_json(content)
    if journal is not None:
        journal.check(keys)
    by_source = tuple(matchings(sources, lake, keys))
    _check_lake(lake, by_source)
    rows = dict[str, int]()
    for matching in by_source:
        for name, path, mask in (
            (matching.source, lake.log(matching.source), matching.rows),
            (f"{matching.source}{QUARANTINE}", lake.quarantine(matching.source), matching.refused),
        ):
            if entries.is_table(path):
                rows[name] = matching_rows(path, mask)
    if journal is None:
        holding = {matching.source for matching in by_source if rows[matching.source]}
        touched = _touched(operators, holding, lake)
    else:
        holding = {matching.source for matching in by_source}
        touched = [one for one in operators if one.name in journal.operators]
    _check_streams(lake, holding, touched)
    return Forgetting(
        lake=lake, keys=tuple(keys), sources=by_source, operators=tuple(touched), rows=rows, journal=journal
    )


def _touched(operators: Sequence[Operator], sources: set[str], lake: Lake) -> list[Operator]:
    """The operators that have results of some sources, upstream first."""
    reading, names = list[Operator](), set[str]()
    for operator in operators:
        if any(
            given.table in sources if given.upstream is None else given.upstream.operator.name in names
            for given in operator.inputs
        ):
            names.add(operator.name)
            reading.append(operator)
    return [one for one in reading if _has_stream(lake, one) or _bounded(lake, one)]


def _has_stream(lake: Lake, operator: Operator) -> bool:
    return Timeline.current(lake, operator.name).deployed is not None


def _bounded(lake: Lake, operator: Operator) -> list[Entry]:
    """The bounded runs whose results an operator has, oldest first."""
    return [*coverage.disjoint(lake, operator.outputs[0].table)][::-1]


def _check_lake(lake: Lake, by_source: Sequence[Matching]) -> None:
    if lake.logs is not None or lake.upstream is not None:
        fix = f"Forget the key there: floodmark forget KEY --lake {lake.logs or lake.upstream}. Then remove this lake, or fork it anew."
        raise LifecycleError(
            f"lake {lake.root}", "the lake of the logs", "one that reads another's", fix, code="LIFECYCLE-294"
        )
    rebuilds = lake.internal("operators", "")
    forks = [one.root for one in places(lake) if one.root != lake.root and not one.root.startswith(rebuilds)]
    if forks:
        fix = (
            "They hold rows of the key, and read this lake's files. End and remove them first: floodmark experiment clean NAME; "
            "or remove the folder, then floodmark maintain --forget FOLDER"
        )
        raise LifecycleError(f"lake {lake.root}", "no forks", ", ".join(forks), fix, code="LIFECYCLE-295")
    for matching in by_source:
        path = lake.log(matching.source)
        if origin.is_replica(path):
            fix = "Forget the key at its home, and replicate the log anew into an empty lake."
            raise LifecycleError(f"log {path}", "a log of this lake", "a replica", fix, code="LIFECYCLE-296")
        if in_order(DeltaTable(path)) is None:
            fix = "Streams read it commit by commit, with the files that have the rows. Land its units without them into a new lake."
            raise LifecycleError(
                f"log {path}",
                "files in the order of their rows",
                "files that overlap",
                fix,
                code="LIFECYCLE-297",
            )


def _check_streams(lake: Lake, sources: Collection[str], touched: Sequence[Operator]) -> None:
    known, tables = {one.name for one in touched}, set(sources)
    for name, deployed in streams(lake).items():
        if name not in known and tables & set(deployed.reads):
            fix = f"Restore its code, or remove what it has: rm -r {lake.internal('operators', name)} and its tables below {lake.root}/outputs"
            got = f"stream '{name}', which no operator of the code has"
            raise LifecycleError(f"lake {lake.root}", "code of all its streams", got, fix, code="LIFECYCLE-298")
        tables |= set(deployed.tables) if name in known else set()
    for operator in touched:
        refuse_another(lake, operator.name, _AGAIN)
        refuse_moved(lake, operator.name)
        changes = plan(Timeline.current(lake, operator.name).deployed, operator)
        if changes.deployed is not None and changes.changes and pending(lake) is None:
            fix = f"Apply the change first: floodmark apply {operator.name}. Or restore the code of {changes.deployed}."
            raise LifecycleError(
                f"operator '{operator.name}'",
                f"the code of {changes.deployed}",
                changes.defined,
                fix,
                code="LIFECYCLE-299",
            )
        frozen.check(lake, operator.name, [Interval()], "forgetting a key")
        pinned = [one.id for one in savepoints.savepoints(lake, operator.name) if one.pinned]
        if pinned:
            fix = (
                f"They hold rows of the key, and would be removed. Allow it: floodmark savepoint pin {pinned[0]} --off"
            )
            got = ", ".join(pinned)
            raise LifecycleError(
                f"operator '{operator.name}'",
                "savepoints that may be removed",
                f"pinned ones: {got}",
                fix,
                code="LIFECYCLE-300",
            )


def forget(
    plan_: Forgetting, runs: Runs, *, on_batch: Callable[[BatchInfo], None] | None = None, why: str = ""
) -> Forgotten:
    """Take the steps of forgetting. After a kill at any point, the same call takes those that are left.

    Args:
        plan_: by ``look``.
        runs: of the engine of the streams.
        on_batch: called after each micro-batch of a stream that is computed anew.
        why: a note for the record of the lake, without the key.

    Raises:
        LifecycleError: LIFECYCLE-003 a stream, a landing or upkeep is running.
    """
    if not plan_.due:
        return Forgotten(rows=plan_.rows, searched=search(plan_.lake.root, plan_.keys))
    return _Work(plan_, runs, on_batch).forget(why)


@dataclass(slots=True)
class _Work:
    """The steps of a forgetting, as they are taken."""

    plan: Forgetting
    runs: Runs
    on_batch: Callable[[BatchInfo], None] | None
    journal: ForgetJournal = field(init=False)

    def __post_init__(self) -> None:
        names = [operator.name for operator in self.plan.operators]
        saved = {name: len(some) for name, some in self.plan.saved.items()}
        self.journal = self.plan.journal or ForgetJournal.begin(self.plan.keys, names, saved, self.plan.rows)

    def forget(self, why: str) -> Forgotten:
        """Take all steps that are left."""
        lake, operators = self.plan.lake, {operator.name: operator for operator in self.plan.operators}
        streaming = [name for name, operator in operators.items() if _has_stream(lake, operator)]
        restated = {name: [entry.interval for entry in _bounded(lake, operators[name])] for name in streaming}
        deleted = [one.id for some in self.plan.saved.values() for one in some]
        take(self.plan.steps(), lambda step: self._take(step, operators))
        again = [name for name in streaming if self.journal.saved.get(name)]
        made = [savepoints.create(name, lake, why="after forgetting a key").id for name in again]
        _record(lake, self.journal, why)
        storage.remove(_journal(lake))
        return Forgotten(
            rows=self.journal.rows,
            searched=search(lake.root, self.plan.keys),
            operators=tuple(operators),
            deleted=tuple(deleted),
            made=tuple(made),
            restated={name: some for name, some in restated.items() if some},
        )

    def _take(self, step: Step, operators: Mapping[str, Operator]) -> None:
        lake = self.plan.lake
        match step:
            case Erase():
                crash.point("forget.before_journal")
                self._note(self.journal)
                with _alone(self.plan):
                    _erase(self.plan)
            case Compute(operator=name):
                _compute_anew(operators[name], lake, self.runs, self.on_batch)
                self._note(self.journal.done(name))
            case Discard(operator=name):
                _discard(operators[name], lake)
            case Purge():
                for operator in operators.values():  # also of streams without savepoints
                    _discard(operator, lake)
                with _alone(self.plan), data_files(lake, "upkeep", _WAIT_SECONDS):
                    for name, path in self.plan.tables.items():
                        _purge(lake, path, name)
            case _:
                raise AssertionError(step)

    def _note(self, journal: ForgetJournal) -> None:
        self.journal = journal
        storage.write(_journal(self.plan.lake), journal.as_json().encode())
        crash.point("forget.after_journal")


def _erase(plan_: Forgetting) -> None:
    with data_files(plan_.lake, "upkeep", _WAIT_SECONDS):
        for matching in plan_.sources:
            erase(plan_.lake.quarantine(matching.source), matching.refused)
            erase(plan_.lake.log(matching.source), matching.rows)


def _compute_anew(operator: Operator, lake: Lake, runs: Runs, on_batch: Callable[[BatchInfo], None] | None) -> None:
    """Compute all results of an operator anew: its stream beside it, and then in its stead; or its bounded runs, one by one."""
    begun = pending(lake)
    if begun is not None:
        with stopped(lake, begun.operators):
            perform(lake, begun)
        if operator.name in begun.operators:
            return
    if not _has_stream(lake, operator):
        for entry in _bounded(lake, operator):
            runs.run_bounded(operator, lake, entry.interval, late_rows=entry.late_rows, force=True)
        return
    beside = Lake(
        lake.internal("operators", operator.name, "rebuild", "forgetting"), logs=lake.root, upstream=lake.root
    )
    with stopped(lake, [operator.name]):
        runs.run_unbounded(operator, beside, until_caught_up=True, on_batch=on_batch)
        become(lake, operator.name, beside, again=_AGAIN, back="", why="forgetting a key")
    remove(beside.root)


def _discard(operator: Operator, lake: Lake) -> None:
    """Remove what holds earlier states of a stream: its savepoints, ended timelines and unfinished rebuilds."""
    for savepoint in savepoints.savepoints(lake, operator.name):
        savepoints.delete(savepoint)
        crash.point("forget.after_savepoint")
    current = str(Timeline.current(lake, operator.name).number)
    for name in storage.folders(lake.internal("operators", operator.name, "timelines")):
        if name != current:
            remove(lake.internal("operators", operator.name, "timelines", name))
    remove(lake.internal("operators", operator.name, "rebuild"))


def _purge(lake: Lake, path: str, name: str) -> None:
    """Remove the files that a table no longer has, whatever their age, and their statistics from its log."""
    kind = path.rsplit("/", 2)[-2]
    gone = vacuum(path, lake.internal("upkeep", kind, f"{name}.json"), floor=None, restorable={}, hours=-1 / 3600)
    if gone.why:
        fix = "Restore the entries of its log from a backup, or land into a new lake."
        raise LifecycleError(f"table {path}", "a log by which old files are known", gone.why, fix, code="LIFECYCLE-301")
    statistics.strip(path)
    crash.point("forget.after_table")


@contextmanager
def _alone(plan_: Forgetting) -> Iterator[None]:
    """Hold the locks of the sources and streams of a forgetting."""
    with ExitStack() as stack:
        for matching in plan_.sources:
            stack.enter_context(exclusive(plan_.lake, "sources", matching.source, "landing", role="forgetting"))
        stack.enter_context(stopped(plan_.lake, [one.name for one in plan_.operators]))
        yield


def _record(lake: Lake, journal: ForgetJournal, why: str) -> None:
    """Record for the lake that something was forgotten: when, by whom, from where; not what."""
    at = time.time_ns() // 1_000_000
    document = {"at": at, "by": getpass.getuser(), "columns": journal.names, "rows": journal.rows, "why": why}
    storage.write(lake.internal("forgotten", f"{at}.json"), json.dumps(document).encode())
    crash.point("forget.after_record")


def _journal(lake: Lake) -> str:
    return lake.internal("forget.json")
