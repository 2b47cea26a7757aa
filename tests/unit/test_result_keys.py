"""Which columns identify a row of a result: those of its stateful step, if what comes behind it hands them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from events import Event

from floodmark import Contract, Operator, Session, Stream, Tumbling, count, operator, sum
from floodmark.spec.graph.stream import WindowedStream


class Loud(Contract):
    """A part of a result, as a function writes it."""

    key: str
    n: int


class Whole(Contract):
    """All that identifies a result, as a function writes it."""

    key: str
    window_start: datetime
    n: int


def _loud(row: Any) -> Iterator[dict[str, Any]]:
    yield {"key": row["key"].upper(), "n": row["n"]}


def _of(behind: Callable[[Stream[Any]], Stream[Any]], window: Any = None, lateness: str = "1 hour") -> Operator:
    def counted(events: Stream[Event]) -> Stream:
        windowed: WindowedStream = events.key_by("key").window(window or Tumbling("1 hour"), allowed_lateness=lateness)
        return behind(windowed.aggregate(n=count(), total=sum("value")))

    return operator(counted)


WHOLE = ("key", "window_start", "window_end")


@pytest.mark.parametrize(
    ("behind", "keys", "lacks"),
    [
        (lambda result: result, WHOLE, ""),
        (lambda result: result.filter("n > 1").with_columns(mean="total / n"), WHOLE, ""),
        (lambda result: result.select("key", "window_start", n="n + 1"), ("key", "window_start"), ""),
        (lambda result: result.select("window_end", "key", "n"), ("window_end", "key"), ""),
        (lambda result: result.select("window_start", "n"), (), "key"),
        (lambda result: result.select("key", "n"), (), "window_start"),
        (lambda result: result.select("window_start", "n", name="key"), (), "key"),
        (lambda result: result.with_columns(key="upper(key)"), (), "key"),
        (lambda result: result.with_columns(window_start="window_start", window_end="window_start"), WHOLE[:2], ""),
        (lambda result: result.select("window_start", "n").with_columns(key="'all'"), (), "key"),
        (lambda result: result.flat_map(_loud, schema=Loud), (), "window_start"),
        (lambda result: result.flat_map(_loud, schema=Whole), WHOLE[:2], ""),
        (lambda result: result.union(result.with_columns(n="-n")), (), None),
    ],
)
def test_the_columns_that_identify_a_result_are_those_that_reach_it_unchanged(
    behind: Callable[[Stream[Any]], Stream[Any]], keys: tuple[str, ...], lacks: str | None
) -> None:
    code = _of(behind)
    assert code.outputs[0].keys == keys
    said = " ".join(code.warnings)
    assert (f"lacks what identifies them: {lacks}. " in said) if lacks else not said
    assert _of(behind, lateness="0 s").warnings == (), "nothing replaces a final result"
    assert _of(behind, Session("5 minutes")).outputs[0].keys == keys
