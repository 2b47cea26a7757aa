"""Sources: a contract, a connector's settings and a watermark strategy. Frozen; nothing is opened here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.fingerprint import canonical, digest
from floodmark.core.time import describe_span, span
from floodmark.spec.contract import Contract, event_time_field, schema
from floodmark.spec.expressions import check
from floodmark.spec.schema import Schema

NAME = re.compile(r"^[a-z][a-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files, landed in the order of ``order_by``, each file once.

    Args:
        path: a folder or glob, relative to the workspace, or a URI Spark can read.
        format: ``"csv"``, ``"json"`` (one object per line) or ``"parquet"``; by default what the name ends with.
            ``.gz`` files are decompressed.
        order_by: ``"name"`` or ``"modified"``: the order of arrival between files. Inside a file it is the row order.
        null_values: CSV texts that mean null.
        delimiter: of CSV.
    """

    path: str
    format: Literal["csv", "json", "parquet"] | None = None
    order_by: Literal["name", "modified"] = "name"
    null_values: tuple[str, ...] = ("", "NA")
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table that something else writes, landed commit by commit.

    Args:
        path: of the table.
        starting_version: the first version to land; 0 is all that is kept.
        read: ``"appends"``: the table is only appended to; a version that updates or deletes rows stops the landing.
            ``"changes"``: the input is what the table holds: a deleted row takes back the one that was inserted, an update does both
            at once. ``"events"``: every change is a row of its own, with three columns more for the contract, named as in Delta:
            ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``, ``delete``), ``_commit_version`` and
            ``_commit_timestamp``; take them by ``Field(alias="_change_type")``.

    Set ``delta.enableChangeDataFeed`` on a table that is updated: without its change files an update is a delete and an insert of every row
    of the files it touches, which comes to the same, but is more.

    Time: a row that is taken back is judged by its own event time, like any other: behind the watermark it is late.
    Source: Delta Lake, change data feed.
    """

    path: str
    starting_version: int = 0
    read: Literal["appends", "changes", "events"] = "appends"


@dataclass(frozen=True, slots=True, init=False)
class Rows:
    """Rows in memory, for tests and examples; landed once, in the order given.

    Args:
        rows: dictionaries, one per row.
    """

    rows: tuple[str, ...]

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        object.__setattr__(self, "rows", tuple(json.dumps(row, default=str) for row in rows))


Connector = Files | DeltaTable | Rows


@dataclass(frozen=True, slots=True, init=False)
class BoundedOutOfOrderness:
    """Rows come at most ``bound`` behind the newest: watermark = maximum event time - bound - 1 ms.

    Source: Flink, ``WatermarkStrategy.forBoundedOutOfOrderness``.
    """

    bound: int

    def __init__(self, bound: str | timedelta) -> None:
        object.__setattr__(self, "bound", _positive(bound, "BoundedOutOfOrderness"))


@dataclass(frozen=True, slots=True)
class Ascending:
    """Event times never go back: watermark = maximum event time - 1 ms. Source: Flink, ``forMonotonousTimestamps``."""

    bound: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True, init=False)
class Punctuated:
    """Only rows for which ``predicate`` holds move the watermark: to their event time - bound - 1 ms.

    Source: Flink, ``AssignerWithPunctuatedWatermarks``.

    Args:
        predicate: Spark SQL text over the contract's columns.
        bound: how far behind such a row others may still come.
    """

    predicate: str
    bound: int

    def __init__(self, predicate: str, bound: str | timedelta = "0 s") -> None:
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "bound", _positive(bound, "Punctuated"))


@dataclass(frozen=True, slots=True)
class FromColumn:
    """The source says its own watermark in a column: a timestamp, or milliseconds since 1970. Nulls do not move it."""

    column: str


@dataclass(frozen=True, slots=True, init=False)
class Learned:
    """As ``BoundedOutOfOrderness(bound)``, while the landing measures how far rows come behind and proposes a bound.

    ``floodmark watermark SOURCE`` shows what it has measured and the line to write. Nothing changes by itself: ``bound`` is in
    force until its author writes another one here. That is allowed for this strategy alone; from which row on which bound was in
    force is recorded with the rows, so that a replay decides as the landing did.

    Time: a larger bound holds the watermark where it is until the bound has caught up, a smaller one moves it at once: it never
    goes back. Rows that have landed stay as late, or as early, as they were.

    State: counts of delays in at most 736 buckets, in the metadata of each landing commit.

    Source: Friedman and Tzoumas, "Introduction to Apache Flink", chapter 4: watermarks learned from the lateness of a stream.

    Args:
        quantile: the share of rows that the proposed bound lets be on time: above 0, at most 1, which is all rows so far.
        bound: how far behind the newest row others may come, in force until you change it.

    Raises:
        DefinitionError: DEFINITION-018, the quantile is no such share; DEFINITION-001 and 004, the bound is no duration.
    """

    quantile: float
    bound: int

    def __init__(self, quantile: float = 0.999, *, bound: str | timedelta) -> None:
        if not 0 < quantile <= 1:
            fix = 'For "all but one row in a thousand" write Learned(0.999, bound="1 hour").'
            raise DefinitionError(
                "Learned, quantile", "a share above 0 and at most 1", repr(quantile), fix, code="DEFINITION-018"
            )
        object.__setattr__(self, "quantile", float(quantile))
        object.__setattr__(self, "bound", _positive(bound, "Learned"))


Strategy = BoundedOutOfOrderness | Ascending | Punctuated | FromColumn | Learned


@dataclass(frozen=True, slots=True, init=False)
class Source:
    """A stream from outside, landed into a log of the same name.

    Args:
        name: lower case, digits, underscores; the table's name.
        contract: what a row is.
        connector: ``Files``, ``DeltaTable`` or ``Rows``.
        watermark: the strategy that decides, while landing and for ever, which rows are late.
        granularity: ``"row"`` (exact, the default): every row is judged by all rows before it; ``"commit"``: by all commits
            before its own, for volume.
        partition_by: column of the source partition (device, broker partition): the watermark is the minimum over the active ones.
        idle_timeout: a source partition without rows for this long, by the landing clock, leaves the minimum until it is back.
        when_idle: what a source does all of whose partitions are idle. ``"wait"``, the default: its watermark stays where it is.
            ``"clock"``: each landing that finds nothing new moves it to the landing clock less ``idle_timeout``, so that a table that
            seldom changes holds nobody back; what arrives with an event time before that is late. At most one marker is landed per
            ``idle_timeout``. Source: Beam, ``CustomTimestampPolicyWithLimitedDelay``.
        future_limit: an event time further ahead of the landing clock than this is quarantined, because it would make
            every row after it late. None: no limit.
        files_per_commit: at most so many files (or commits of a table) land in one commit.

    Raises:
        DefinitionError: DEFINITION-014..017.
    """

    name: str
    contract: type[Contract]
    connector: Connector
    watermark: Strategy
    granularity: Literal["row", "commit"]
    partition_by: str | None
    idle_timeout: int | None
    when_idle: Literal["wait", "clock"]
    future_limit: int | None
    files_per_commit: int

    def __init__(  # noqa: PLR0913 - a source is all of this, by name
        self,
        name: str,
        *,
        contract: type[Contract],
        connector: Connector,
        watermark: Strategy,
        granularity: Literal["row", "commit"] = "row",
        partition_by: str | None = None,
        idle_timeout: str | timedelta | None = None,
        when_idle: Literal["wait", "clock"] = "wait",
        future_limit: str | timedelta | None = "1 day",
        files_per_commit: int = 100,
    ) -> None:
        where, columns = f"source '{name}'", schema(contract)
        check_name(name, where)
        values = {
            "name": name,
            "contract": contract,
            "connector": connector,
            "watermark": watermark,
            "granularity": granularity,
            "partition_by": partition_by,
            "idle_timeout": None if idle_timeout is None else _positive(idle_timeout, f"{where}, idle_timeout"),
            "when_idle": when_idle,
            "future_limit": None if future_limit is None else _positive(future_limit, f"{where}, future_limit"),
            "files_per_commit": files_per_commit,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        if event_time_field(contract) is None and not contract.floodmark_ingestion_time:
            fix = f'Type one field EventTime, or: class {contract.__name__}(Contract, event_time="ingestion").'
            raise DefinitionError(where, "a contract with an event time", "none", fix, code="DEFINITION-014")
        named = (partition_by, watermark.column if isinstance(watermark, FromColumn) else None)
        for column in (n for n in named if n is not None and n not in columns):
            fix = closest(column, columns.names) + f"Columns: {columns.describe()}."
            raise DefinitionError(where, "a column of its contract", repr(column), fix, code="DEFINITION-015")
        if isinstance(watermark, Punctuated):
            check(watermark.predicate, columns, f"{where}, Punctuated", boolean=True)
        if self.revisable and contract.floodmark_ingestion_time:
            fix = "A change has to be found again in time: type a column that an update keeps, or that says when it was made, EventTime."
            got = 'event_time="ingestion"'
            raise DefinitionError(
                where, 'rows with an event time of their own, as read="changes"', got, fix, code="DEFINITION-017"
            )
        if when_idle not in {"wait", "clock"} or (
            when_idle == "clock" and (not self.idle_timeout or isinstance(watermark, Learned))
        ):
            fix = 'when_idle="clock" takes an idle_timeout above zero, which is how far behind the clock rows may come, and a bound that is not learned.'
            got = f"when_idle={when_idle!r}, idle_timeout={idle_timeout!r}, {type(watermark).__name__}"
            raise DefinitionError(where, 'when_idle="wait" or "clock"', got, fix, code="DEFINITION-017")
        if granularity not in {"row", "commit"} or files_per_commit < 1:
            fix = 'granularity is "row" or "commit"; files_per_commit is at least 1.'
            got = f"granularity={granularity!r}, files_per_commit={files_per_commit!r}"
            raise DefinitionError(where, "valid settings", got, fix, code="DEFINITION-017")

    @property
    def schema(self) -> Schema:
        """The columns of a row, without stamps."""
        return schema(self.contract)

    @property
    def revisable(self) -> bool:
        """Rows of it may be taken back."""
        return isinstance(self.connector, DeltaTable) and self.connector.read == "changes"

    def canonical(self) -> dict[str, object]:
        """What decides the meaning of the log: not the folder it is read from."""
        strategy = {"strategy": type(self.watermark).__name__} | {
            slot: getattr(self.watermark, slot) for slot in self.watermark.__slots__
        }
        return {
            "source": self.name,
            "schema": self.schema.canonical(),
            "event_time": event_time_field(self.contract),
            "watermark": strategy,
            "granularity": self.granularity,
            "partition_by": self.partition_by,
            **(
                {"read": self.connector.read}
                if isinstance(self.connector, DeltaTable) and self.connector.read != "appends"
                else {}
            ),
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the canonical form."""
        return digest(self.canonical())

    def __hash__(self) -> int:
        return hash((self.name, canonical(self.canonical())))


def check_name(name: str, where: str) -> None:
    """Refuse what cannot be a table's name."""
    if not NAME.match(name) or "__" in name:
        fix = 'Use lower case letters, digits and single underscores, beginning with a letter: "hourly_departures".'
        raise DefinitionError(where, "a name that can be a table", repr(name), fix, code="DEFINITION-016")


def _positive(value: str | timedelta, where: str) -> int:
    milliseconds = span(value, where)
    if milliseconds < 0:
        got = describe_span(milliseconds)
        raise DefinitionError(where, "zero or more", got, "Write the duration without a minus.", code="DEFINITION-004")
    return milliseconds
