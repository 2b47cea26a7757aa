"""Kinds of windows to draw from, and the rows that are in each window by the rules as they are written."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from floodmark import Calendar, Count, Global, Session, Sliding, Tumbling
from floodmark.core.time import END, NEVER, from_ms

DAY = 86_400_000
ZONES = (
    "UTC",
    "America/New_York",
    "Africa/Monrovia",
    "Europe/Amsterdam",
    "Asia/Kolkata",
    "Pacific/Apia",
    "America/Sao_Paulo",
)

Row = dict[str, Any]
Stamped = Sequence[tuple[int, int, Row]]
"""(event time, stamp, columns) of the rows of one key in order of arrival."""
Contents = list[tuple[int, int | None, list[Row]]]
"""(start, end, rows) of each window; without an end where it has none."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A window with its settings.

    Args:
        kind: its name.
        window: as floodmark declares it.
        settings: of ``window(...)``.
        unit: rows a good part of it apart are interesting, ms.
        lateness: allowed, ms.
    """

    kind: str
    window: Any
    settings: dict[str, Any]
    unit: int
    lateness: int

    def contents(self, rows: Stamped) -> tuple[Contents, list[Row]]:
        """What each window of one key holds in the end, and the rows too late for all of theirs."""
        match self.window:
            case Session():
                return _sessions(rows, self.window.gap, self.lateness)
            case Count():
                return _counts(rows, self.window.size, self.window.slide), []
            case Global():
                return [(0, None, [row for _, _, row in rows])], []
            case Calendar():
                unit, zone, offset = self.window.unit, self.window.timezone, self.window.offset
                return _placed(rows, lambda t: [_local(t, unit, zone, offset)], self.lateness)
            case _:
                size, slide = self.window.size, getattr(self.window, "slide", self.window.size)
                return _placed(rows, lambda t: _grid(t, size, slide, self.window.offset), self.lateness)

    def __str__(self) -> str:
        return ", ".join([str(self.window), *(f"{name}={value!r}" for name, value in self.settings.items())])


PLAIN = ("tumbling", "sliding", "gaps", "global")
KINDS = (*PLAIN, "session", "calendar", "count", "last of")


def draw_windows(rng: random.Random, *, plain: bool) -> Windows:
    """A window of any kind; ``plain``: of a kind, and without settings, that a bounded run may compute in SQL."""
    unit = rng.choice([10, 1000, 3_600_000, DAY])
    kind = rng.choice(PLAIN if plain else KINDS)
    offset = f"{rng.choice([0, unit // 3])} ms"
    unit = unit if kind != "calendar" else DAY
    window: Any = {
        "tumbling": lambda: Tumbling(f"{unit} ms", offset),
        "sliding": lambda: Sliding(f"{2 * unit} ms", f"{unit} ms", offset),
        "gaps": lambda: Sliding(f"{unit} ms", f"{2 * unit} ms", offset),
        "session": lambda: Session(f"{unit} ms"),
        "calendar": lambda: Calendar(
            rng.choice(["day", "week", "month"]), rng.choice(ZONES), rng.choice(["0 s", "5 h"])
        ),
        "count": lambda: Count(rng.randint(1, 4)),
        "last of": lambda: Count(*rng.choice([(3, 1), (4, 2), (2, 5)])),
        "global": Global,
    }[kind]()
    settings: dict[str, Any] = {}
    lateness = 0
    if kind not in {"count", "last of", "global"}:
        lateness = 0 if plain else rng.choice([0, 0, unit // 2, 5 * unit])
        settings = {"allowed_lateness": f"{lateness} ms", "late": rng.choice(["drop", "side_output"])}
    if not plain and rng.random() < 0.25:
        settings["order"] = "arrival"
    return Windows(kind, window, settings, unit, lateness)


def _placed(
    rows: Stamped, windows_of: Callable[[int], list[tuple[int, int]]], lateness: int
) -> tuple[Contents, list[Row]]:
    windows: dict[tuple[int, int], list[Row]] = {}
    late = []
    for time, stamp, row in rows:
        own = windows_of(time)
        open_ones = [(start, end) for start, end in own if end - 1 + lateness > stamp]
        for window in open_ones:
            windows.setdefault(window, []).append(row)
        late += [row] if own and not open_ones else []
    return [(start, end, members) for (start, end), members in windows.items()], late


def _grid(time: int, size: int, slide: int, offset: int) -> list[tuple[int, int]]:
    last = (time - offset) // slide * slide + offset
    starts = [last - k * slide for k in range(size // slide + 1)]
    return [(start, start + size) for start in starts if start <= time < start + size]


def _sessions(rows: Stamped, gap: int, lateness: int) -> tuple[Contents, list[Row]]:
    sessions: list[tuple[int, int, list[tuple[int, Row]]]] = []
    late = []
    for number, (time, stamp, row) in enumerate(rows):
        start, end = time, min(time + gap, END + 1)
        touched = [s for s in sessions if s[0] <= end and s[1] >= start and s[1] - 1 + lateness > stamp]
        widest = max([end, *(s[1] for s in touched)])
        if widest - 1 + lateness <= stamp and widest - 1 < END:
            late.append(row)
            continue
        members = sorted([m for s in touched for m in s[2]] + [(number, row)], key=lambda m: m[0])
        sessions = [s for s in sessions if s not in touched]
        sessions.append((min([start, *(s[0] for s in touched)]), widest, members))
    return [(start, end, [row for _, row in members]) for start, end, members in sessions], late


def _counts(rows: Stamped, size: int, slide: int) -> Contents:
    ordered = [row for _, _, row in rows]
    ends = range(slide, len(ordered) + 1, slide)
    return [(0, None, ordered[max(0, end - size) : end]) for end in ends]


def _local(time: int, unit: str, zone: str, offset: int) -> tuple[int, int]:
    """The longest stretch of time about the instant whose instants have one local date (week, month)."""
    name = _label(time, unit, zone, offset)
    start, end = (_edge(time, unit, zone, offset, name, sign) for sign in (-1, 1))
    return max(start, NEVER), min(end, END + 1)


def _edge(time: int, unit: str, zone: str, offset: int, name: int, sign: int) -> int:
    inside, outside = time, time + sign * 40 * DAY
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if _label(middle, unit, zone, offset) == name:
            inside = middle
        else:
            outside = middle
    return inside if sign < 0 else outside


def _label(time: int, unit: str, zone: str, offset: int) -> int:
    """A number for the local date, greater for later ones."""
    moment = time - offset
    shown = from_ms(min(max(moment, NEVER + 2 * DAY), END - 2 * DAY)).astimezone(ZoneInfo(zone))
    distance = (shown.utcoffset() or timedelta()) // timedelta(milliseconds=1)
    day = (moment + distance) // DAY
    if unit == "day":
        return day
    if unit == "week":
        return (day + 3) // 7
    first, last = NEVER // DAY, END // DAY
    if not first <= day <= last:
        return -1 if day < first else 10**6
    first_of = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return first_of.year * 12 + first_of.month
