"""The positions and table versions of a stream at the end of a micro-batch, and checks that its inputs and outputs still match them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.timeline import Timeline, inputs_at, inputs_of, positions_at
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import MicroBatch, Restored
from floodmark.lake.table.outputs import check_there, input_path
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion


@dataclass(frozen=True, slots=True)
class BatchState:
    """The inputs a stream had read and the outputs it had written at the end of a micro-batch.

    Args:
        deployed: the definition the stream runs under.
        batch: number of the micro-batch.
        watermark: progress of the outputs when no micro-batch follows this one, ms UTC.
        inputs: input name -> table version up to which the stream has read.
        outputs: the output tables that exist, each at its version at the end of the micro-batch.
    """

    deployed: Deployed
    batch: int
    watermark: int
    inputs: Mapping[str, TableVersion]
    outputs: tuple[TableVersion, ...]

    @property
    def version(self) -> str:
        """Version of the operator, ``name@3f9a2c1b``."""
        return self.deployed.version


def state_at(timeline: Timeline, batch: int) -> BatchState:
    """The state of a stream at the end of a committed micro-batch. Its checkpoint must still retain the micro-batch."""
    lake, deployed = timeline.lake, timeline.identity.deployed()
    assert deployed is not None
    outputs = tuple(
        TableVersion(table=table, id=entries.id_of(lake.output(table)), version=_version_at(timeline, table, batch))
        for table in deployed.tables
        if entries.is_table(lake.output(table))
    )
    watermark = timeline.checkpoint.final_progress(batch)
    return BatchState(deployed, batch, watermark, inputs_at(timeline, batch), outputs)


def check_read(timeline: Timeline) -> bool:
    """Apply ``check_inputs`` to the positions in a stopped stream's checkpoint.

    A stream that was killed in its first micro-batch is checked at the positions planned for that batch, which it reads again.

    Returns:
        As of ``check_inputs``.

    Raises:
        LifecycleError: LIFECYCLE-038.
    """
    last, deployed = max(timeline.checkpoint.last_committed(), 0), timeline.identity.deployed()
    read = positions_at(timeline, last)
    version = timeline.operator if deployed is None else deployed.version
    follows = check_inputs(timeline.lake, version, inputs_of(timeline, read), since=began_with(read))
    if follows and timeline.checkpoint.skipped(last):  # as an older savepoint has it, to which it was taken back
        got = "a rebuild, behind which a stream that knows its place by sequences would leave out rows: they begin anew"
        where, named = f"operator '{timeline.operator}'", timeline.operator
        raise LifecycleError(where, "rows that have only come", got, _anew(named), code="LIFECYCLE-038")
    return follows


def began_with(read: Mapping[str, Position]) -> dict[str, int]:
    """Input name -> the table version a stream started from, for inputs whose initial files are not all read yet.

    Args:
        read: input name -> position up to which the input is read.
    """
    return {name: at.snapshot for name, at in read.items() if at.snapshot is not None}


def check_inputs(
    lake: Lake,
    operator: str,
    inputs: Mapping[str, TableVersion],
    but: Collection[str] = (),
    since: Mapping[str, int] = MappingProxyType({}),
) -> bool:
    """Check that a stream can resume on its inputs: the rows it has read are unchanged, and later commits only append.

    A replacement whose difference the stream follows counts as appended.

    Args:
        lake: the lake the stream runs in.
        operator: version of the stream's operator, ``name@3f9a2c1b``.
        inputs: input name -> table version up to which the stream has read.
        but: ids of tables whose commits are not checked for restores.
        since: input name -> the table version the stream started from, where its initial files may not all be read.

    Returns:
        True if the stream has yet to read a difference that it follows.

    Raises:
        LifecycleError: LIFECYCLE-038, an input table was created again, or was restored after the version that is read.
    """
    named, follows = operator.partition("@")[0], False
    anew = _anew(named)
    for name, table_version in inputs.items():
        path, where = input_path(lake, table_version.table), f"operator '{named}', input '{name}'"
        check_there(path, where, anew)
        if table_version.id and entries.id_of(path) != table_version.id:
            got = f"another '{table_version.table}', made since"
            raise LifecycleError(where, "the table its stream has read", got, anew, code="LIFECYCLE-038")
        if table_version.id in but or path == lake.log(
            table_version.table
        ):  # a log is never restored to an older version
            continue
        read, own = max(table_version.version, since.get(name, -1)), path == lake.output(table_version.table)
        for commit in history.every(path):
            if commit.version <= read:
                break
            if not isinstance(commit.record, Restored):
                continue
            here = own or read >= commit.record.difference
            if not (here and commit.record.follows(operator, read)):
                got = f"a {commit.record.mode} of '{table_version.table}' behind what its stream has read"
                raise LifecycleError(where, "rows that have only come", got, anew, code="LIFECYCLE-038")
            follows |= read < commit.record.difference
    return follows


def _anew(named: str) -> str:
    return f"Compute it anew: floodmark run {named} --unbounded --from-scratch --until-caught-up, then floodmark start {named}"


def is_there(lake: Lake, output: TableVersion) -> bool:
    """True if an output table exists and has the id recorded in the savepoint; False if it was deleted or created again."""
    path = lake.output(output.table)
    return entries.is_table(path) and entries.id_of(path) == output.id


def check_output(lake: Lake, output: TableVersion, where: str, fix: str) -> None:
    """Check that an output table exists and has the id recorded in the savepoint.

    Args:
        lake: the lake of the output.
        output: the table as recorded in the savepoint.
        where: the object that needs the table, for the error.
        fix: the remedy, for the error.

    Raises:
        ExecutionError: EXECUTION-002, the table does not exist.
        LifecycleError: LIFECYCLE-036, the table was created again.
    """
    path = lake.output(output.table)
    check_there(path, where, fix)
    if entries.id_of(path) != output.id:
        got = "another one of that name, made since"
        raise LifecycleError(where, "the table the savepoint knows", got, fix, code="LIFECYCLE-036")


def _version_at(timeline: Timeline, table: str, batch: int) -> int:
    """The last version of an output before the first commit of a later micro-batch or of a later timeline.

    A later timeline exists while a rollback runs, or after a rollback was killed.
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
