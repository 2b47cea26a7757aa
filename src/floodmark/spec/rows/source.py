"""Sources: a contract, a connector's settings and a watermark strategy. Frozen declarations, without I/O."""

from __future__ import annotations

import re
from copy import copy
from datetime import timedelta
from typing import Any, Literal

from attrs import Attribute, evolve, field, frozen

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.fingerprint import OMITTED, SKIPPED, Declared, canonical, digest, renamed
from floodmark.core.time import describe_span
from floodmark.spec.expressions import check
from floodmark.spec.rows.checks import converting, not_negative, written
from floodmark.spec.rows.connector import Connector
from floodmark.spec.rows.contract import Contract, event_time_field, schema
from floodmark.spec.values.schema import Schema

NAME = re.compile(r"^[a-z][a-z0-9_]*$")
LONGEST_NAME = 100
"""Longest name of a source, operator or output: file systems take 255 bytes for a table's folder, which holds two of them."""


class _Strategy(Declared):
    """A watermark strategy: how far the watermark is behind the rows, which decides which rows are late."""

    __slots__ = ()
    entry = "strategy"


def _bound(value: str | timedelta, strategy: object = None, _: Any = None) -> int:
    return not_negative(value, type(strategy).__name__)


@frozen(field_transformer=converting)
class BoundedOutOfOrderness(_Strategy):
    """Rows come at most ``bound`` behind the newest: watermark = maximum event time - bound - 1 ms.

    Source: Flink, ``WatermarkStrategy.forBoundedOutOfOrderness``.
    """

    bound: int = field(converter=_bound)


@frozen
class Ascending(_Strategy):
    """Event times never go back: watermark = maximum event time - 1 ms. Source: Flink, ``forMonotonousTimestamps``."""

    bound: int = field(default=0, init=False)


@frozen(field_transformer=converting)
class Punctuated(_Strategy):
    """Only rows for which ``predicate`` holds move the watermark: to their event time - bound - 1 ms.

    Source: Flink, ``AssignerWithPunctuatedWatermarks``.

    Args:
        predicate: Spark SQL text over the contract's columns.
        bound: how far later rows may be behind such a row without being late.
    """

    predicate: str
    bound: int = field(default=written("0 s"), converter=_bound)


@frozen
class FromColumn(_Strategy):
    """A column of the source holds its watermark: a timestamp, or milliseconds since 1970. Nulls do not move the watermark."""

    column: str


@frozen(field_transformer=converting)
class Learned(_Strategy):
    """As ``BoundedOutOfOrderness(bound)``, while the landing measures the delays of rows and proposes a bound.

    ``floodmark watermark SOURCE`` shows the measured delays and the line to write. Nothing changes by itself, unless ``adopt_after`` says so: ``bound``
    is in force until its author writes another one here. Only this strategy allows another bound for a landed source; each landing records the
    bound in force with its rows, so that a replay decides as the landing did.

    Time: a larger bound holds the watermark where it is until maximum event time - bound reaches it, a smaller one moves it at once: the
    watermark never decreases. The lateness of landed rows does not change.

    State: counts of delays in at most 736 buckets, in the metadata of each landing commit.

    Source: Friedman and Tzoumas, "Introduction to Apache Flink", chapter 4: watermarks learned from the lateness of a stream.

    Args:
        quantile: the share of measured rows that are on time under the proposed bound: above 0, at most 1 (all rows).
        bound: how far rows may be behind the newest row without being late; in force until its author changes it.
        adopt_after: once so many rows have been measured, each landing that starts puts the proposed bound in force by itself, instead of ``bound``;
            None: never.

    Raises:
        DefinitionError: DEFINITION-018, the quantile is no such share, or ``adopt_after`` no such number; DEFINITION-001 and 004, the bound is no duration.
    """

    quantile: float = field(default=0.999)
    bound: int = field(kw_only=True, converter=_bound)
    adopt_after: int | None = field(kw_only=True, default=None, metadata=OMITTED)

    @quantile.validator
    def _is_share(self, _: Attribute[Any], quantile: float) -> None:
        if not 0 < quantile <= 1:
            fix = 'For "all but one row in a thousand" write Learned(0.999, bound="1 hour").'
            expected = "a share above 0 and at most 1"
            raise DefinitionError("Learned, quantile", expected, repr(quantile), fix, code="DEFINITION-018")

    @adopt_after.validator
    def _is_number(self, _: Attribute[Any], rows: int | None) -> None:
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
            fix = 'For example Learned(0.999, bound="1 hour", adopt_after=10_000).'
            expected = "a number of rows, or None"
            raise DefinitionError("Learned, adopt_after", expected, repr(rows), fix, code="DEFINITION-018")


Strategy = BoundedOutOfOrderness | Ascending | Punctuated | FromColumn | Learned


def _length(value: str | timedelta | None, source: Any = None, setting: Any = None) -> int | None:
    return None if value is None else not_negative(value, f"source '{source.name}', {setting.name}")


@frozen(field_transformer=converting)
class Source(Declared):
    """A stream from outside, landed into a log of the same name.

    Args:
        name: lower case, digits, underscores; the table's name.
        contract: of its rows.
        connector: what it reads: ``Files``, ``DeltaTable``, ``Rows``, or any other :class:`~floodmark.spec.rows.connector.Connector`.
        watermark: the strategy that decides, while landing and for ever, which rows are late.
        granularity: ``"row"`` (exact, the default): every row is judged by all rows before it; ``"commit"``: by all commits
            before its own, for volume.
        partition_by: column of the source partition (device, broker partition): the watermark is the minimum over the active ones.
        idle_timeout: a source partition without rows for this long, by the landing clock, leaves the minimum until it is back.
        when_idle: what happens when all partitions of the source are idle. ``"wait"``, the default: the watermark stays where it is.
            ``"clock"``: each landing without new rows moves the watermark to the landing clock less ``idle_timeout``, so that a table that
            seldom changes does not delay its readers; rows with an earlier event time are late from then on. At most one marker is landed
            per ``idle_timeout``. Source: Beam, ``CustomTimestampPolicyWithLimitedDelay``.
        future_limit: an event time further ahead of the landing clock than this is quarantined, because it would make
            every row after it late. None: no limit.
        files_per_commit: most files (or commits of a table) that land in one commit.
        max_quarantine_share: the landing stops before a commit of 100 rows or more that would quarantine more than this share of them,
            because then the contract is wrong rather than the rows. Nothing of that commit lands. 1: no limit.

    Raises:
        DefinitionError: DEFINITION-014..017.
    """

    name: str = field(metadata=renamed("source"))
    contract: type[Contract] = field(kw_only=True, metadata=SKIPPED)
    connector: Connector = field(kw_only=True, metadata=SKIPPED)
    watermark: Strategy = field(kw_only=True)
    granularity: Literal["row", "commit"] = field(default="row", kw_only=True)
    partition_by: str | None = field(default=None, kw_only=True)
    idle_timeout: int | None = field(default=None, kw_only=True, converter=_length, metadata=SKIPPED)
    when_idle: Literal["wait", "clock"] = field(default="wait", kw_only=True, metadata=SKIPPED)
    future_limit: int | None = field(default=written("1 day"), kw_only=True, converter=_length, metadata=SKIPPED)
    files_per_commit: int = field(default=100, kw_only=True, metadata=SKIPPED)
    max_quarantine_share: float = field(default=0.9, kw_only=True, metadata=SKIPPED)

    def __attrs_post_init__(self) -> None:
        where, contract, watermark = f"source '{self.name}'", self.contract, self.watermark
        check_name(self.name, where)
        self._check_kinds(where)
        columns = self.schema
        if event_time_field(contract) is None and not contract.floodmark_ingestion_time:
            fix = f'Type one field EventTime, without | None, or: class {contract.__name__}(Contract, event_time="ingestion").'
            raise DefinitionError(where, "a contract with an event time", "none", fix, code="DEFINITION-014")
        named = (self.partition_by, watermark.column if isinstance(watermark, FromColumn) else None)
        for column in (n for n in named if n is not None and n not in columns):
            fix = columns.nearest(column)
            raise DefinitionError(where, "a column of its contract", repr(column), fix, code="DEFINITION-015")
        if isinstance(watermark, Punctuated):
            check(watermark.predicate, columns, f"{where}, Punctuated", boolean=True)
        if self.revisable and contract.floodmark_ingestion_time:
            fix = "A change has to be found again in time: type a column that an update keeps, or that says when it was made, EventTime."
            expected, got = 'rows with an event time of their own, as read="changes"', 'event_time="ingestion"'
            raise DefinitionError(where, expected, got, fix, code="DEFINITION-017")
        learned = isinstance(watermark, Learned)
        clocked = self.when_idle == "clock"
        if self.when_idle not in {"wait", "clock"} or (clocked and (not self.idle_timeout or learned)):
            fix = 'when_idle="clock" takes an idle_timeout above zero, which is how far behind the clock rows may come, and a bound that is not learned.'
            timeout = None if self.idle_timeout is None else describe_span(self.idle_timeout)
            got = f"when_idle={self.when_idle!r}, idle_timeout={timeout!r}, {type(watermark).__name__}"
            raise DefinitionError(where, 'when_idle="wait" or "clock"', got, fix, code="DEFINITION-017")
        share = self.max_quarantine_share
        if self.granularity not in {"row", "commit"} or self.files_per_commit < 1 or not 0 <= share <= 1:
            fix = (
                'granularity is "row" or "commit"; files_per_commit is at least 1; max_quarantine_share is from 0 to 1.'
            )
            got = f"granularity={self.granularity!r}, files_per_commit={self.files_per_commit!r}, max_quarantine_share={share!r}"
            raise DefinitionError(where, "valid settings", got, fix, code="DEFINITION-017")

    def _check_kinds(self, where: str) -> None:
        """Refuse a contract, connector or watermark of another type."""
        kinds: tuple[tuple[str, bool, str], ...] = (
            (
                "contract",
                isinstance(self.contract, type) and issubclass(self.contract, Contract),
                "Order, where Order is a Contract",
            ),
            ("connector", isinstance(self.connector, Connector), 'Files("inbox/orders")'),
            ("watermark", isinstance(self.watermark, Strategy), 'BoundedOutOfOrderness("30 minutes")'),
        )
        for name, fits, example in kinds:
            if not fits:
                got = f"{name}={shown(getattr(self, name))}"
                raise DefinitionError(where, f"a {name}", got, f"For example {name}={example}.", code="DEFINITION-017")

    @property
    def schema(self) -> Schema:
        """The columns of a row, without stamps."""
        return schema(self.contract)

    @property
    def divided(self) -> bool:
        """Whether the source has source partitions, over which its watermark is the minimum."""
        return self.partition_by is not None or self.connector.partitioned

    @property
    def revisable(self) -> bool:
        """Whether rows of the source may be retracted."""
        return self.connector.revisable

    def canonical(self) -> dict[str, Any]:
        """Everything that decides the meaning of the log: columns and watermark strategy, but not the folder that is read."""
        columns = {"schema": self.schema.canonical(), "event_time": event_time_field(self.contract)}
        return super().canonical() | columns | self.connector.meaning()

    def with_bound(self, bound: int) -> Source:
        """The same source with another bound of ``Learned``, ms."""
        assert isinstance(self.watermark, Learned)
        changed = copy(self)
        object.__setattr__(changed, "watermark", evolve(self.watermark, bound=timedelta(milliseconds=bound)))
        return changed

    @property
    def fingerprint(self) -> str:
        """Digest of the canonical form."""
        return digest(self.canonical())

    def __hash__(self) -> int:
        return hash((self.name, canonical(self.canonical())))


def check_name(name: str, where: str) -> None:
    """Refuse a name that cannot be a table's."""
    if not NAME.match(name) or "__" in name:
        fix = 'Use lower case letters, digits and single underscores, beginning with a letter: "hourly_departures".'
        raise DefinitionError(where, "a name that can be a table", repr(name), fix, code="DEFINITION-016")
    if len(name) > LONGEST_NAME:
        got, fix = f"{len(name)}: {shown(name)}", "Shorten it: a table of that name is a folder."
        raise DefinitionError(
            f"{where[:60]}...'", f"a name of at most {LONGEST_NAME} characters", got, fix, code="DEFINITION-016"
        )
