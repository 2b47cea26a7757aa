"""What forgetting some keys means in a lake: the tables and operators it touches, its steps, and what refuses it. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder import storage
from floodmark.lake.folder.paths import QUARANTINE, Lake
from floodmark.lake.forgetting.erasure import matching_rows
from floodmark.lake.forgetting.keys import ForgetJournal, ForgottenKey
from floodmark.lake.forgetting.matching import Matching, matchings
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.readers import places
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import pending, refuse_another, refuse_moved
from floodmark.lake.results import coverage, frozen
from floodmark.lake.stream.timeline import Timeline, streams
from floodmark.lake.table import entries, origin
from floodmark.lake.table.sequences import in_order
from floodmark.lifecycle.coverage import Entry
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.steps import Compute, Discard, Erase, Purge, Step
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source

AGAIN = "floodmark forget"
"""The command that finishes a switch of a forgetting; the keys are not recorded."""


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
        LifecycleError: LIFECYCLE-291 another forgetting is unfinished, LIFECYCLE-292 no source has a column, LIFECYCLE-293 a value has another type,
            LIFECYCLE-034 a rollback or rebuild is unfinished, LIFECYCLE-042 a stream has moved, LIFECYCLE-201 results are frozen, LIFECYCLE-294 to
            LIFECYCLE-300 the lake has readers or copies that would keep the rows.
    """
    content = storage.read(journal_of(lake))
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
    return [one for one in reading if has_stream(lake, one) or bounded_runs(lake, one)]


def has_stream(lake: Lake, operator: Operator) -> bool:
    """True if an operator's stream has written or committed a micro-batch."""
    return Timeline.current(lake, operator.name).deployed is not None


def bounded_runs(lake: Lake, operator: Operator) -> list[Entry]:
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
        refuse_another(lake, operator.name, AGAIN)
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


def journal_of(lake: Lake) -> str:
    """Path of the journal of an unfinished forgetting."""
    return lake.internal("forget.json")
