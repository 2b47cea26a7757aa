"""Hypothesis strategies for streams out of order. They need ``hypothesis``, which floodmark itself does not.

@given(streams({"key": st.sampled_from("ab"), "value": st.integers()}, delay=timedelta(minutes=5)), cuts())
def test_it(rows, cut): ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Row = dict[str, Any]


def streams(
    columns: Mapping[str, SearchStrategy[Any]],
    *,
    event_time: str = "at",
    start: datetime = datetime(2020, 1, 1, tzinfo=UTC),
    step: timedelta = timedelta(minutes=1),
    delay: timedelta = timedelta(minutes=5),
    late: float = 0.1,
    min_size: int = 0,
    max_size: int = 50,
) -> SearchStrategy[list[Row]]:
    """Rows in order of arrival, with disorder.

    Args:
        columns: name -> its values.
        event_time: name of the event-time column, which is added.
        start: event time of the first.
        step: event time goes on by up to two of them from row to row.
        delay: a row is at most so far behind those before it ...
        late: ... but for this share of them, which may be ten times as far.
        min_size: rows.
        max_size: rows.
    """
    row_strategy = st.fixed_dictionaries(
        {
            "step": st.integers(0, 2 * _ms(step)),
            "behind": st.integers(0, _ms(delay)),
            "late": st.floats(0, 1).map(lambda drawn: drawn < late),
            "row": st.fixed_dictionaries(dict(columns)),
        }
    )

    def placed(drawn: Sequence[Mapping[str, Any]]) -> list[Row]:
        rows, front = [], start
        for each in drawn:
            front += timedelta(milliseconds=each["step"])
            behind = timedelta(milliseconds=each["behind"] * (10 if each["late"] else 1))
            rows.append({event_time: front - behind, **each["row"]})
        return rows

    return st.lists(row_strategy, min_size=min_size, max_size=max_size).map(placed)


def cuts(max_pieces: int = 8) -> SearchStrategy[Callable[[Sequence[Any]], list[list[Any]]]]:
    """Functions that cut rows into micro-batches, each function always at the same positions; micro-batches may be empty."""
    shares = st.lists(st.floats(0, 1, allow_nan=False), max_size=max_pieces - 1).map(sorted)

    def cutter(places: Sequence[float]) -> Callable[[Sequence[Any]], list[list[Any]]]:
        def cut(rows: Sequence[Any]) -> list[list[Any]]:
            bounds = [0, *(round(place * len(rows)) for place in places), len(rows)]
            return [list(rows[i:j]) for i, j in itertools.pairwise(bounds)]

        return cut

    return shares.map(cutter)


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
