"""What a stream had read and written at the end of a micro-batch, and whether all of that is still there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from floodmark.core.errors import LifecycleError
from floodmark.lake import entries, history
from floodmark.lake.checkpoint import Position
from floodmark.lake.commits import MicroBatch, Restored
from floodmark.lake.outputs import check_there, input_path
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import Timeline, inputs_at, inputs_of, positions_at
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a stream had read and written at the end of a micro-batch.

    Args:
        deployed: the definition it goes on under.
        batch: its number.
        watermark: progress of the outputs once it is taken into account, ms UTC.
        inputs: input name -> how far it was read.
        outputs: tables that are there, as they were.
    """

    deployed: Deployed
    batch: int
    watermark: int
    inputs: Mapping[str, TableVersion]
    outputs: tuple[TableVersion, ...]

    @property
    def version(self) -> str:
        """Of the operator."""
        return self.deployed.version


def state_at(timeline: Timeline, batch: int) -> BatchState:
    """How far a stream was at the end of a committed micro-batch that its checkpoint keeps."""
    lake, deployed = timeline.lake, timeline.identity.deployed()
    assert deployed is not None
    outputs = tuple(
        TableVersion(table=table, id=entries.id_of(lake.output(table)), version=_version_at(timeline, table, batch))
        for table in deployed.tables
        if entries.is_table(lake.output(table))
    )
    watermark = timeline.checkpoint.settled(batch)
    return BatchState(deployed, batch, watermark, inputs_at(timeline, batch), outputs)


def check_read(timeline: Timeline) -> None:
    """As ``check_inputs``, of a stopped stream; one that was killed in its first micro-batch repeats it, and reads what it read then.

    Raises:
        LifecycleError: LIFECYCLE-038.
    """
    read = positions_at(timeline, max(timeline.checkpoint.last_committed(), 0))
    check_inputs(timeline.lake, timeline.operator, inputs_of(timeline, read), since=began_with(read))


def began_with(read: Mapping[str, Position]) -> dict[str, int]:
    """Input name -> the version of its table that a stream began with, of which it has not read all.

    Args:
        read: input name -> how far it was read.
    """
    return {name: at.snapshot for name, at in read.items() if at.snapshot is not None}


def check_inputs(
    lake: Lake,
    operator: str,
    inputs: Mapping[str, TableVersion],
    but: Collection[str] = (),
    since: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Make sure that a stream finds its inputs as it left them: what it has read is still there, and more has come behind it.

    Args:
        lake: it runs in.
        operator: its name.
        inputs: input name -> how far it has read.
        but: ids of tables that are not looked at.
        since: input name -> the version of its table that the stream began with, of which it may not have read all.

    Raises:
        LifecycleError: LIFECYCLE-038, a table was made anew, or taken back behind what is read.
    """
    anew = f"Compute it anew: floodmark run {operator} --unbounded --from-scratch --until-caught-up, then floodmark start {operator}"
    for name, table_version in inputs.items():
        path, where = input_path(lake, table_version.table), f"operator '{operator}', input '{name}'"
        check_there(path, where, anew)
        if table_version.id and entries.id_of(path) != table_version.id:
            got = f"another '{table_version.table}', made since"
            raise LifecycleError(where, "the table its stream has read", got, anew, code="LIFECYCLE-038")
        if table_version.id in but or path == lake.log(table_version.table):  # a log is never taken back
            continue
        for commit in history.standing(path, limit=None):
            if commit.version <= max(table_version.version, since.get(name, -1)):
                break
            if isinstance(commit.record, Restored):
                got = f"a {commit.record.mode} of '{table_version.table}' behind what its stream has read"
                raise LifecycleError(where, "rows that have only come", got, anew, code="LIFECYCLE-038")


def is_there(lake: Lake, output: TableVersion) -> bool:
    """Whether an output of a savepoint is the table the savepoint knows; False where it is gone, or was made anew."""
    path = lake.output(output.table)
    return entries.is_table(path) and entries.id_of(path) == output.id


def check_output(lake: Lake, output: TableVersion, where: str, fix: str) -> None:
    """Make sure that an output of a savepoint is the table the savepoint knows.

    Raises:
        ExecutionError: EXECUTION-002, it is gone.
        LifecycleError: LIFECYCLE-036, it was made anew.
    """
    path = lake.output(output.table)
    check_there(path, where, fix)
    if entries.id_of(path) != output.id:
        got = "another one of that name, made since"
        raise LifecycleError(where, "the table the savepoint knows", got, fix, code="LIFECYCLE-036")


def _version_at(timeline: Timeline, table: str, batch: int) -> int:
    """The last version of an output before the stream's first commit of a later micro-batch, and before a later timeline.

    That may have begun already: by a rollback that is at work, or was killed.
    """
    path = timeline.lake.output(table)
    version = entries.version_of(path)
    for commit in history.every(path, history.LIMIT):
        record = commit.record
        if not isinstance(record, MicroBatch | Restored) or record.timeline < timeline.number:
            continue
        if record.timeline > timeline.number or (isinstance(record, MicroBatch) and record.batch > batch):
            version = commit.version - 1
        else:
            break
    return version
