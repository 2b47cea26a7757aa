"""Rows whose event times lie far from all others of a log, and their effect on the watermark: one line for people, with the remedy.

No lateness is decided here: rows stay as late as the landing stamped them. The counts come from the landing commits (``Landing.event_times``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.core.time import END, NEVER, from_ms, iso
from floodmark.lake.table.commits import Landing
from floodmark.semantics.time.stretches import Stretch, apart
from floodmark.spec.rows.contract import event_time_field
from floodmark.spec.rows.source import FromColumn, Source

_YEAR = 31_556_952_000
"""Milliseconds of a mean year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRows:
    """A few rows far from all others.

    Args:
        side: ``before`` or ``ahead`` of all other rows.
        rows: number of far rows.
        event_time: the furthest event time, ms.
        distance: gap between the far rows and the others, ms.
        file: unit of the first far row to land; empty if an earlier version of floodmark landed it.
        position: position of that row in its unit.
        late: number of other rows that landed after far rows ahead and are late because of them; 0 for rows before. None with source partitions, each of
            which has its own watermark, so the rows are not counted.
        holds: True if the watermark stands at the far rows, ahead of all others.
        remedy: advice for people.
    """

    side: Literal["before", "ahead"]
    rows: int
    event_time: int
    distance: int
    file: str
    position: int
    late: int | None = 0
    holds: bool = False
    remedy: str

    def describe(self) -> str:
        """One line: the number of far rows, the first of them, their effect, the remedy."""
        some, years = _counted(self.rows, "row"), _counted(max(self.distance // _YEAR, 1), "year")
        far = f"{years} {self.side}{' of' * (self.side == 'ahead')} all others"
        where = iso(self.event_time) if self.rows == 1 else f"the furthest at {iso(self.event_time)}"
        if self.file:
            where += f"{', first to land' * (self.rows > 1)}: {self.file} row {self.position}"
        if self.late:
            late = f"{_counted(self.late, 'row')} {'is' if self.late == 1 else 'are'} late"
            return f"{late} because of {some}, {far} ({where}): {self.remedy}"
        effect = ", so that rows with the usual event times are late from now on" if self.holds else ""
        return f"{some}, {far} ({where}){effect}: {self.remedy}"


def far_rows(source: Source, landing: Landing) -> tuple[FarRows, ...]:
    """The rows far before and far ahead of all others of a log.

    Args:
        source: source of the log.
        landing: the newest landing commit of the log, which counts the rows.
    """
    before, others, ahead = apart(landing.event_times)
    groups = list[FarRows]()
    if others is None:
        return ()
    if before is not None:
        groups.append(
            FarRows(
                side="before",
                rows=before.rows,
                event_time=before.start,
                distance=others.start - before.end,
                file=before.file,
                position=before.position,
                remedy=_before(source, others),
            )
        )
    if ahead is not None:
        total = sum(stretch.rows for stretch in landing.event_times)
        holds = _reached(landing) > others.end and not isinstance(source.watermark, FromColumn)
        late = total - ahead.earlier - ahead.rows if holds else 0
        groups.append(
            FarRows(
                side="ahead",
                rows=ahead.rows,
                event_time=ahead.end,
                distance=ahead.start - others.end,
                file=ahead.file,
                position=ahead.position,
                late=None if holds and source.divided else late,
                holds=holds,
                remedy=_ahead(source, ahead, clock=landing.modified, holds=holds),
            )
        )
    return tuple(groups)


def _reached(landing: Landing) -> int:
    """The watermark of a log, ms; if the input has ended, the watermark before the end."""
    if not landing.ended:
        return landing.state.watermark
    return min((partition.watermark for partition in landing.state.partitions.values()), default=NEVER)


def newly_far(source: Source, was: Landing, now: Landing) -> tuple[FarRows, ...]:
    """The far rows that a landing reports: far rows it landed, and far rows that made rows of this landing late.

    Args:
        source: source of the log.
        was: the newest landing commit before the landing.
        now: the newest landing commit.
    """
    known = {one.side: (one.rows, one.late) for one in far_rows(source, was)}
    return tuple(one for one in far_rows(source, now) if known.get(one.side) != (one.rows, one.late))


def known_before(landing: Landing) -> Sequence[Stretch]:
    """The event-time ranges of a log. For rows landed by earlier versions of floodmark, which recorded none, one range at the watermark."""
    rows, watermark = landing.next_sequence - landing.ordinal - 1, landing.state.watermark
    if landing.event_times or rows <= 0 or not NEVER < watermark < END:
        return landing.event_times
    return (Stretch(start=watermark, end=watermark, rows=rows, earlier=0),)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _before(source: Source, others: Stretch) -> str:
    name = event_time_field(source.contract)
    bound = from_ms(others.start)
    return (
        f"if that is wrong, `{name}: EventTime = Field(ge=datetime({bound.year}, 1, 1, tzinfo=UTC))` in {source.contract.__name__} sets such rows "
        f"aside from now on, and `.filter(\"{name} >= timestamp '{bound.year:04d}-01-01'\")` keeps an operator from those in the log"
    )


def _ahead(source: Source, ahead: Stretch, *, clock: int, holds: bool) -> str:
    bound = 'Source(..., future_limit="1 day")'
    if ahead.start <= clock:
        first = from_ms(ahead.start)
        limit = f"datetime({first.year}, {first.month}, {first.day}, tzinfo=UTC)"
        bound = f"`{event_time_field(source.contract)}: EventTime = Field(lt={limit})` in {source.contract.__name__}"
    if not holds:
        return f"if that is wrong, {bound} sets such rows aside from now on"
    return (
        f"the watermark never goes back. If that is wrong, let {bound} set such rows aside, and give the source a new name, under which all its "
        "input lands again. Until then a bounded run computes the late rows too: floodmark run OPERATOR --late-rows all"
    )
