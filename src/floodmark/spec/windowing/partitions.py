"""Asset partitions: event time cut into days or hours, and the column an output's table is divided by accordingly.

A partition is named by a text that sorts like time. A row of an output is in the partition of its ``_event_time``; a window's row in
that of the window's last millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, timedelta

from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.core.time import END, NEVER, Interval, from_ms, iso, parse_instant, to_ms, zone
from floodmark.spec.values.schema import PARTITION

_HOUR = 3_600_000
_EDGE = 48 * _HOUR
"""Within this distance of the ends of time a local day may lie outside of the range of instants."""

_DAGSTER_HOUR = re.compile(r"^(\d{4}-\d{2}-\d{2})-(\d{2}:\d{2})$")


@dataclass(frozen=True, slots=True)
class Daily:
    """One partition per calendar day of a time zone: 23, 24 or 25 hours, as its clocks say.

    Args:
        start: the first day, ``"2013-01-01"``.
        timezone: IANA name.
        end: the day after the last one; None: up to today.

    Raises:
        DefinitionError: DEFINITION-002 no such time zone, DEFINITION-090 not a date (or not a full hour), or an end before its start.
    """

    start: str
    timezone: str = "UTC"
    end: str | None = None

    def __post_init__(self) -> None:
        _check(self)

    def key(self, moment: int) -> str:
        """(instant, ms) -> name of its partition, ``2013-01-01``; an instant outside of the calendar is in its first or last day."""
        try:
            return from_ms(moment).astimezone(zone(self.timezone)).date().isoformat()
        except OverflowError:
            return (date.min if moment < 0 else date.max).isoformat()

    def around(self, moment: int) -> Interval:
        """(instant, ms) -> interval of its partition."""
        day = date.fromisoformat(self.key(moment))
        return Interval(start=self.midnight(day), end=self.midnight(day + timedelta(days=1)))

    @property
    def boundaries(self) -> str:
        """Where one partition ends and the next begins, whatever the first and the last: what a table is divided by."""
        return f"day {self.timezone}"

    def sql(self) -> str:
        """The name of a row's partition, as Spark SQL."""
        return f"date_format(from_utc_timestamp(`_event_time`, '{self.timezone}'), 'yyyy-MM-dd')"

    def midnight(self, day: date) -> int:
        """The instant a day begins."""
        return to_ms(datetime(day.year, day.month, day.day, tzinfo=zone(self.timezone)))


@dataclass(frozen=True, slots=True)
class Hourly:
    """One partition per hour of a time zone; each lasts an hour, also when the clocks change.

    Args:
        start: the first hour, a full one of the time zone: ``"2013-01-01T00:00"``, or as Dagster writes hours, ``"2013-01-01-00:00"``.
        timezone: IANA name.
        end: the hour after the last one; None: up to now.

    Raises:
        DefinitionError: as of ``Daily``; DEFINITION-091, clocks of the zone change by part of an hour.
    """

    start: str
    timezone: str = "UTC"
    end: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _iso(self.start))
        object.__setattr__(self, "end", _iso(self.end))
        _check(self)
        year = min(datetime.fromisoformat(self.start).year, MAXYEAR - 1)
        moments = [datetime(y, month, 1) for y in (year, year + 1) for month in range(1, 13)]  # noqa: DTZ001 - its zone comes next
        if len({_past_the_hour(m, self.timezone) for m in moments}) > 1:
            where, got = "Hourly", f"{self.timezone}, whose clocks change by part of an hour"
            fix = "Partition by day, or by hour of another time zone."
            raise DefinitionError(where, "hours that begin at one minute all year", got, fix, code="DEFINITION-091")

    @property
    def boundaries(self) -> str:
        """Where one partition ends and the next begins, whatever the first and the last: what a table is divided by."""
        return f"hour {self.shift // 60_000} minutes past"

    @property
    def shift(self) -> int:
        """Time from a full hour of UTC to the begin of a partition, ms."""
        return _past_the_hour(datetime.fromisoformat(self.start), self.timezone)

    def key(self, moment: int) -> str:
        """(instant, ms) -> name of its partition, the partition's first minute in UTC: ``2013-01-01T0500Z``."""
        start = from_ms(max(self.around(moment).start, NEVER))
        return f"{start.date().isoformat()}T{start:%H%M}Z"

    def around(self, moment: int) -> Interval:
        """(instant, ms) -> interval of its partition."""
        start = moment - (moment - self.shift) % _HOUR
        return Interval(start=start, end=start + _HOUR)

    def sql(self) -> str:
        """The name of a row's partition, as Spark SQL."""
        start = f"unix_millis(`_event_time`) - pmod(unix_millis(`_event_time`) - {self.shift}, {_HOUR})"
        return f"date_format(timestamp_millis({start}), \"yyyy-MM-dd'T'HHmm'Z'\")"


Partitions = Daily | Hourly


def names(partitions: Partitions, moments: Iterable[int]) -> Iterator[tuple[str, int]]:
    """(ascending instants) -> (name, number of instants) of each partition they lie in, in order.

    Args:
        partitions: how event time is cut.
        moments: ms, ascending; each name is computed once.
    """
    name, until, size = "", NEVER, 0
    for moment in moments:
        if size and moment < until:
            size += 1
            continue
        if size:
            yield name, size
        name, size = partitions.key(moment), 1
        until = partitions.around(moment).end if NEVER + _EDGE < moment < END - _EDGE else moment
    if size:
        yield name, size


def first(partitions: Partitions) -> int:
    """The first instant of the first partition."""
    return parse_instant(partitions.start, "start", partitions.timezone)


def end(partitions: Partitions) -> int:
    """The first instant after the last partition; the end of time if the partitions have no end."""
    return END if partitions.end is None else parse_instant(partitions.end, "end", partitions.timezone)


def split(partitions: Partitions, interval: Interval) -> Iterator[tuple[str, Interval]]:
    """(interval) -> (name, interval) of every partition that overlaps it, in order."""
    moment = interval.start
    while moment < interval.end:
        partition = partitions.around(moment)
        yield partitions.key(moment), partition
        moment = partition.end


def named(partitions: Partitions, text: str, where: str) -> Interval:
    """The event time of the asset partition a text names, or of a range of them, ``FIRST...LAST`` with both ends included.

    Args:
        partitions: how event time is cut.
        text: name of a partition, or its first instant in ISO 8601, in the partitions' time zone if it has no offset; also as Dagster writes
            hours, ``2013-01-01-06:00``.
        where: the option, for the error.

    Raises:
        LifecycleError: LIFECYCLE-002, a text that is no ISO 8601 date or time; LIFECYCLE-001, a range whose last partition is before its first;
            LIFECYCLE-190, no partition begins there.
    """
    texts = [part.strip() for part in text.split("...", 1)]
    parts = [_beginning(partitions, one, where) for one in (texts[0], texts[-1])]
    return Interval(start=parts[0].start, end=parts[1].end)


def instant_of(partitions: Partitions | None, text: str, where: str) -> int:
    """The instant, ms, that a text names: the start of an asset partition, the end of the last one, or any instant of what is not divided.

    Raises:
        LifecycleError: as ``named``.
    """
    if partitions is None:
        return parse_instant(text, where)
    closed = partitions.end is not None and "..." not in text
    if closed and (moment := _moment(partitions, text, where)) == end(partitions):
        return moment
    return named(partitions, text, where).start


def beginning(partitions: Partitions | None, text: str | None, where: str) -> int | None:
    """As ``instant_of``, for what lasts from an instant on; None for all of it: no text, or the start of the first partition.

    Raises:
        LifecycleError: as ``named``.
    """
    instant = None if text is None else instant_of(partitions, text, where)
    return None if partitions is not None and instant == first(partitions) else instant


def _moment(partitions: Partitions, text: str, where: str) -> int:
    return parse_instant(_iso(text) or text, where, partitions.timezone)


def _beginning(partitions: Partitions, text: str, where: str) -> Interval:
    moment = _moment(partitions, text, where)
    if _begins(partitions, moment) and first(partitions) <= moment < end(partitions):
        return partitions.around(moment)
    last = "open" if partitions.end is None else partitions.end
    outside = not first(partitions) <= moment < end(partitions)
    got = f"'{text}', {'outside of them' if outside else f'of which the partition is {partitions.key(moment)}'}"
    fix = f"Name a day, or for hours a full hour, of {partitions.timezone}, from {partitions.start} on; end (exclusive): {last}."
    raise LifecycleError(where, "the name or the first instant of an asset partition", got, fix, code="LIFECYCLE-190")


def predicate(partitions: Partitions, interval: Interval) -> str:
    """Condition for the rows of an interval, as Spark SQL. Whole partitions are selected by the partition column, which needs metadata alone."""
    conditions = []
    if interval.start > NEVER + _EDGE:
        conditions.append(f"{PARTITION} >= '{partitions.key(interval.start)}'")
    if interval.end < END - _EDGE:
        conditions.append(f"{PARTITION} <= '{partitions.key(interval.end - 1)}'")
    if interval.start > NEVER and not _begins(partitions, interval.start):
        conditions.append(f"_event_time >= {literal(interval.start)}")
    if interval.end <= END and not _begins(partitions, interval.end):
        conditions.append(f"_event_time < {literal(interval.end)}")
    return " AND ".join(conditions) or f"{PARTITION} IS NOT NULL"


def _begins(partitions: Partitions, moment: int) -> bool:
    """Whether a partition begins at an instant; False near the ends of time."""
    return NEVER + _EDGE < moment < END - _EDGE and partitions.around(moment).start == moment


def literal(moment: int) -> str:
    """An instant as Spark SQL."""
    return f"timestamp'{iso(moment).replace('Z', '+00:00')}'"


def _check(partitions: Partitions) -> None:
    where = type(partitions).__name__
    zone(partitions.timezone, where)
    for text in (partitions.start, *([] if partitions.end is None else [partitions.end])):
        try:
            moment = datetime.fromisoformat(text)
        except (TypeError, ValueError) as error:
            raise _not_local(where, text) from error
        day = moment.date().isoformat()
        hour = day if isinstance(partitions, Daily) else f"{day}T{moment:%H}:00"
        if text not in {day, hour} or moment.tzinfo is not None:
            raise _not_local(where, text)
    if first(partitions) >= end(partitions):
        got, fix = f"{partitions.start} to {partitions.end}", "The end is the first day or hour that is not part of it."
        raise DefinitionError(where, "a start before its end", got, fix, code="DEFINITION-090")


def _iso(text: str | None) -> str | None:
    """An hour as Dagster writes it, ``2013-01-01-00:00``, in ISO 8601; any other text unchanged."""
    return _DAGSTER_HOUR.sub(r"\1T\2", text) if isinstance(text, str) else text


def _not_local(where: str, text: object) -> DefinitionError:
    fix = (
        'Write a date, "2013-01-01", or for hours "2013-01-01T06:00", without an offset: the time zone is an argument.'
    )
    expected = "a date" if where == "Daily" else "a date, or a date and a full hour"
    return DefinitionError(where, expected, repr(text), fix, code="DEFINITION-090")


def _past_the_hour(moment: datetime, timezone: str) -> int:
    return to_ms(moment.replace(tzinfo=zone(timezone))) % _HOUR
