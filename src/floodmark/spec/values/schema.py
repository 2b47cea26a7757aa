"""Columns of a stream: names, Spark SQL types, nullability. Pure text, so that no engine is needed to check a graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from floodmark.core.errors import ExecutionError, closest

STAMPS = ("_event_time", "_watermark", "_progress", "_sequence", "_ingest_time", "_kind")
"""The stamps: columns that every landed row and every output row has beside its own."""

TAG = "_input"
"""Column of a tagged union that holds the number of the input a row is from."""
PARTITION = "_asset_partition"
"""The column an output's table is divided by when its asset has partitions: the partition's name; null for markers."""

ROW, RETRACTION, MARKER = 0, -1, 1
"""The values of ``_kind``."""

SEQUENCES, BOUNDED = 1 << 30, 1 << 56
"""``_sequence`` of an output: numbers per micro-batch, and the first number of a bounded run. Between them is room for 2^26 micro-batches (two
years of one a second); a stream that has used them all stops. A union of n streams multiplies ``_sequence`` by n; consecutive unions may multiply it by 64 in all.
"""


def first_sequence(batch: int) -> int:
    """Where ``_sequence`` begins for the rows of a micro-batch of an unbounded run.

    Raises:
        ExecutionError: EXECUTION-046, the micro-batch's rows would count as those of a bounded run.
    """
    first = (batch + 1) * SEQUENCES
    if first + SEQUENCES > BOUNDED:
        fix = "Compute its outputs anew, numbered from 0: floodmark run OPERATOR --unbounded --from-scratch"
        expected = f"at most {BOUNDED // SEQUENCES - 1:,} micro-batches"
        raise ExecutionError("unbounded run", expected, f"micro-batch {batch:,}", fix, code="EXECUTION-046")
    return first


TICK = 2
"""A tick of the processing clock among the rows a kernel is given; never in a table."""

FAILED = 3
"""A row that a user's function failed for, on its way to the quarantine; never in a table. Its column ``FAILURE`` holds the reason."""

FAILURE = "_failure"
"""The column of a ``FAILED`` row that holds the reason, beside the stamps: a struct of the columns of ``QUARANTINE``."""

CARRIED = "_carried"
"""Column of markers inside a stream of several stages on Spark: what earlier stages have emitted, on its way past a later one; null in rows."""

STAMP_DDL = (
    "`_event_time` timestamp, `_watermark` bigint, `_progress` bigint, `_sequence` bigint, "
    "`_ingest_time` timestamp, `_kind` int"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Args:
        name: as in the table.
        type: Spark SQL type in lower case: ``bigint``, ``string``, ``decimal(10,2)``, ``array<bigint>``.
        nullable: whether a null is allowed; otherwise a null breaks the contract.
        description: for people: unit, meaning.
    """

    name: str
    type: str
    nullable: bool = True
    description: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered set of columns."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def types(self) -> dict[str, str]:
        """Name to type, in order."""
        return {column.name: column.type for column in self.columns}

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def ddl(self) -> str:
        """``a bigint, b string``: what Spark reads; every column nullable, as markers have no payload."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    def canonical(self) -> list[dict[str, object]]:
        """Columns as JSON values, without descriptions."""
        return [{k: v for k, v in asdict(column).items() if k != "description"} for column in self.columns]

    def nearest(self, name: str) -> str:
        """``Did you mean 'origin'? Columns: origin string, ...``: for errors about a column that is not there."""
        return f"{closest(name, self.names)}Columns: {self.describe()}."

    def describe(self) -> str:
        """``origin string, dep_delay bigint``: for error messages."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


QUARANTINE = Schema(
    (
        Column(name="step", type="string", description="the function that failed"),
        Column(name="key", type="string", description="JSON of the key; null before rows have one"),
        Column(name="reason", type="string", description="what it raised"),
        Column(name="given", type="string", description="JSON of the row, or of the pane, it failed for"),
    )
)
"""The columns of an operator's quarantine."""
