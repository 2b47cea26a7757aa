"""Forgetting of keys: their rows leave logs and quarantines; what was computed from these logs is computed anew, and all older copies are removed.

The new results replace the old ones in one commit per table, as in a rebuild. Older savepoints of the streams hold the rows in their state and in the
versions they restore, so they are removed; each stream that had one gets a new one.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder import storage
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import data_files, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.forgetting import statistics
from floodmark.lake.forgetting.erasure import erase
from floodmark.lake.forgetting.keys import ForgetJournal
from floodmark.lake.forgetting.plan import AGAIN, Forgetting, bounded_runs, has_stream, journal_of
from floodmark.lake.forgetting.search import Searched, search
from floodmark.lake.maintenance.vacuum import vacuum
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.switch import become, pending, perform, stopped
from floodmark.lake.stream import answers
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.steps import Compute, Discard, Erase, Purge, Step, take
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, RunResult

_WAIT_SECONDS = 60
"""Longest wait for upkeep, a rollback or a fork."""


class Runs(Protocol):
    """The runs of an engine, with its session."""

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """Run an operator as a stream."""
        ...

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """Compute an interval of an operator."""
        ...


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
        streaming = [name for name, operator in operators.items() if has_stream(lake, operator)]
        restated = {name: [entry.interval for entry in bounded_runs(lake, operators[name])] for name in streaming}
        deleted = [one.id for some in self.plan.saved.values() for one in some]
        take(self.plan.steps(), lambda step: self._take(step, operators))
        again = [name for name in streaming if self.journal.saved.get(name)]
        made = [savepoints.create(name, lake, why="after forgetting a key").id for name in again]
        _record(lake, self.journal, why)
        storage.remove(journal_of(lake))
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
                    answers.drop_unread(lake, operator.name)
                with _alone(self.plan), data_files(lake, "upkeep", _WAIT_SECONDS):
                    for name, path in self.plan.tables.items():
                        _purge(lake, path, name)
            case _:
                raise AssertionError(step)

    def _note(self, journal: ForgetJournal) -> None:
        self.journal = journal
        storage.write(journal_of(self.plan.lake), journal.as_json().encode())
        crash.point("forget.after_journal")


def _erase(plan_: Forgetting) -> None:
    with data_files(plan_.lake, "upkeep", _WAIT_SECONDS):
        for matching in plan_.sources:
            erase(plan_.lake.quarantine(matching.source), matching.refused)
            erase(plan_.lake.log(matching.source), matching.rows)
    for operator in plan_.operators:  # of one that was computed anew already, those that are left are its own
        if operator.calls and (plan_.journal is None or operator.name in plan_.journal.due):
            answers.set_aside(plan_.lake, operator.name)


def _compute_anew(operator: Operator, lake: Lake, runs: Runs, on_batch: Callable[[BatchInfo], None] | None) -> None:
    """Compute all results of an operator anew: its stream beside it, and then in its stead; or its bounded runs, one by one."""
    begun = pending(lake)
    if begun is not None:
        with stopped(lake, begun.operators):
            perform(lake, begun)
        if operator.name in begun.operators:
            return
    if not has_stream(lake, operator):
        for entry in bounded_runs(lake, operator):
            runs.run_bounded(operator, lake, entry.interval, late_rows=entry.late_rows, force=True)
        return
    beside = Lake(
        lake.internal("operators", operator.name, "rebuild", "forgetting"), logs=lake.root, upstream=lake.root
    )
    with stopped(lake, [operator.name]):
        runs.run_unbounded(operator, beside, until_caught_up=True, on_batch=on_batch)
        become(lake, operator.name, beside, again=AGAIN, back="", why="forgetting a key")
    remove(beside.root)


def _discard(operator: Operator, lake: Lake) -> None:
    """Remove what holds earlier states of a stream: its savepoints, ended timelines and unfinished rebuilds."""
    for savepoint in savepoints.savepoints(lake, operator.name):
        savepoints.delete(savepoint)
        crash.point("forget.after_savepoint")
    savepoints.collect_of(lake, operator.name)
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
