"""Formats of times: ISO 8601, other spellings as formats of ``strptime``, numbers since 1970."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.sql import literal
from floodmark.spec.values.annotations import EPOCHS

TOLERATED = 0.1
"""Greatest share of other values in a column of times; rows with such values would be quarantined."""
_DATES = (
    "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%m-%d-%y",
    "%d/%b/%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%b-%d-%Y", "%b %d, %Y", "%B %d, %Y", "%B %d %Y", "%Y-%m-%d", "%Y %m %d",
    "%a, %d %b %Y", "%Y %b %d", "%Y-%b-%d",
)  # fmt: skip
_CLOCKS = (
    "", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", ":%H:%M:%S", " %H:%M:%S %z", ":%H:%M:%S %z",
    " %H.%M", " - %H:%M", ", %H:%M:%S", " %H:%M:%S GMT", " %H:%M:%S UTC",
)  # fmt: skip
_OTHERS = ("%a %b %d %H:%M:%S %z %Y", "%a %b %d %H:%M:%S %Y", "%Y%m%dT%H%M%S", "%Y%m%d%H%M%S", "%Y%m%d %H:%M:%S")
FORMATS = tuple(date + clock for date, clock in product(_DATES, _CLOCKS) if date + clock != "%Y-%m-%d") + _OTHERS
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[-+][0-9]{2}:?[0-9]{2})?$"
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_WORDS = {word.lower() for word in (*calendar.month_name, *calendar.month_abbr, *calendar.day_abbr)}
_WORDS |= {"am", "pm", "t", "z", "gmt", "utc"}
_LONGEST, _DIGITS = 40, 3
"""Most characters, and fewest digits, of a time. Other texts, and texts with words that no time has, are not tried with any format."""
_LOOKED = 20
"""First values of a column. Only formats that fit more than half of these are tried on all values."""
_FIRST, _LAST = 946_684_800, 4_102_444_800
"""2000 to 2100, in seconds since 1970: a number in this range, in a field named like a time, is an instant."""
_OTHERS_TOLERATED = 0.01
"""Greatest share of values that are no instants of this century in a column of numbers since 1970."""
FINER = "to the microsecond: the digits behind are left out"
"""What is said of times with nanoseconds."""
_NAMES = re.compile(
    r"(^|_)(event_?time|time(stamp)?|ts|at|when|datetime|date|created|occurred|observed|epoch|pickup|pubdate|published)($|_)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The format of the times in a column.

    Args:
        type: ``datetime`` or ``date``.
        format: format for ``TimeFormat``; None for ISO 8601.
        misfits: number of values in another format.
        zoned: whether the times have an offset.
        note: a comment for the author.
    """

    type: str
    format: str | None = None
    misfits: int = 0
    zoned: bool = True
    note: str = ""


def named_like_time(name: str) -> bool:
    """True if a name suggests a time: ``ordered_at``, ``pickupTime``."""
    spelled = snake(name)
    return _NAMES.search(spelled) is not None or spelled.endswith(("time", "date", "_on"))


def snake(name: str) -> str:
    """A name in lower case with underscores between its words: ``pickupTime`` as ``pickup_time``."""
    return re.sub(r"[ .-]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def written(texts: pa.ChunkedArray, preferred: Sequence[str] = ()) -> Written | None:
    """(column of texts without nulls) -> the format of its times; None if the column does not hold times.

    Args:
        texts: the values.
        preferred: formats that the author names, tried first.
    """
    size = len(texts)
    for form in preferred:
        if (hits := _hits(texts, form)) and (size - hits) <= TOLERATED * size:
            return _in_format(form, size - hits)
    for kind, pattern in (("datetime", _ISO), ("date", _ISO_DATE)):
        hits = pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0
        if hits and size - hits <= TOLERATED * size:
            offset = pc.sum(pc.match_substring_regex(texts, r"(Z|[-+][0-9]{2}:?[0-9]{2})$")).as_py() or 0
            finer = pc.any(pc.match_substring_regex(texts, r"\.[0-9]{7,}")).as_py()
            note = FINER if finer and kind == "datetime" else ""
            return Written(type=kind, misfits=size - hits, zoned=kind == "datetime" and offset >= hits, note=note)
    return _other(texts)


def _other(texts: pa.ChunkedArray) -> Written | None:
    size, first = len(texts), texts.slice(0, _LOOKED).to_pylist()
    some = list(filter(_like_a_time, first))
    if len(some) * 2 <= len(first):
        return None
    likely = [form for form in FORMATS if sum(_fits(text, form) for text in some) * 2 > len(first)]
    counted = [(hits, form) for form in likely if size - (hits := _hits(texts, form)) <= TOLERATED * size]
    if not counted:
        return None
    most = max(hits for hits, _ in counted)
    best = [form for hits, form in counted if hits == most]
    if len(best) == 1:
        return _in_format(best[0], size - most)
    ordered = [form for form in best if _in_order(texts, form)]
    american = next((form for form in best if form.startswith("%m/")), best[0])
    chosen = ordered[0] if len(ordered) == 1 else american
    other = next(form for form in best if form != chosen)
    note = "" if len(ordered) == 1 or chosen[1] == other[1] else f"or is it {other}? --time-format '{other}'"
    return _in_format(chosen, size - most, note)


def _in_format(form: str, misfits: int, note: str = "") -> Written:
    dated = not any(directive in form for directive in ("%H", "%I")) and form not in EPOCHS
    zoned = form in EPOCHS or "%z" in form or form.endswith(("GMT", "UTC"))
    return Written(type="date" if dated else "datetime", format=form, misfits=misfits, zoned=zoned, note=note)


def _like_a_time(text: str) -> bool:
    if len(text) > _LONGEST or sum(map(str.isdigit, text)) < _DIGITS:
        return False
    return all(word.lower() in _WORDS for word in re.findall(r"[^\W\d_]+", text))


def _fits(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # noqa: DTZ007 - only whether it can be read
    except ValueError:
        return False
    return True


def _hits(texts: pa.ChunkedArray, form: str) -> int:
    """The number of values in a format."""
    if form in EPOCHS:
        return int(pc.sum(pc.match_substring_regex(texts, r"^-?[0-9]+(\.[0-9]+)?$")).as_py() or 0)
    with duckdb.connect() as connection:
        rows = connection.from_arrow(pa.table({"v": texts}))
        counts = rows.aggregate(f"count(try_strptime(v, {literal(form)}))").fetchall()
    return int(counts[0][0])


def _in_order(texts: pa.ChunkedArray, form: str) -> bool:
    with duckdb.connect() as connection:
        rows = connection.from_arrow(pa.table({"v": texts, "n": range(len(texts))}))
        times = rows.project(f"try_strptime(v, {literal(form)}) AS t, n").filter("t IS NOT NULL")
        steps = times.project("t < lag(t) OVER (ORDER BY n) AS back").aggregate("count(*) FILTER (back)")
        counts = steps.fetchall()
    return bool(counts[0][0] == 0)


def epoch_of(numbers: Sequence[float], size: int) -> str | None:
    """The format (``epoch ms``) in which numbers are instants of this century; None if there is none.

    Args:
        numbers: those among the values that are numbers.
        size: number of all values.
    """
    for form, unit in EPOCHS.items():
        hits = sum(_FIRST * unit <= number <= _LAST * unit for number in numbers)
        if hits and size - hits <= _OTHERS_TOLERATED * size:
            return form
    return None
