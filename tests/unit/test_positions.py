"""Which source of a stream's query is which input, whoever has counted them."""

from __future__ import annotations

from typing import Any

import pytest
from events import Event
from streams import PAIRED

from floodmark import Stream, operator
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.positions import numbers, of_inputs, of_sources, of_starts


@operator
def mixed(one: Stream[Event], other: Stream[Event]) -> Stream:
    """Reads one input twice, around another one."""
    keyed = one.key_by("key")
    return keyed.interval_join(other.union(one).key_by("key"), "1 minute", "2 minutes", prefix="next_")


def at(*versions: int) -> list[Position]:
    return [Position(version, -1, str(version)) for version in versions]


@pytest.mark.parametrize(
    ("code", "count", "expected"),
    [
        (PAIRED, 1, {"events": [0]}),
        (PAIRED, 2, {"events": [0, 1]}),
        (PAIRED, 4, {"events": [0, 2]}),
        (mixed, 2, {"one": [0], "other": [1]}),
        (mixed, 3, {"one": [0, 2], "other": [1]}),
        (mixed, 6, {"one": [0, 4], "other": [2]}),
        (mixed, 0, {}),
    ],
)
def test_numbers_of_the_sources_of_each_input(code: Any, count: int, expected: dict[str, list[int]]) -> None:
    assert numbers(code.canonical(), count) == expected


def test_positions_of_inputs_and_of_the_markers_beside_them() -> None:
    graph, positions = mixed.canonical(), at(7, 1, 8, 2, 7, 3)
    assert of_inputs(graph, positions) == {"one": at(7)[0], "other": at(8)[0]}
    assert of_starts(graph, positions) == at(1, 2, 3)
    assert of_starts(PAIRED.canonical(), at(7, 7)) == []


def test_positions_of_an_engine_that_counts_each_input_once_become_those_of_sources() -> None:
    assert of_sources(mixed.canonical(), at(7, 8)) == at(7, 8, 7)
    assert of_sources(mixed.canonical(), at(7, 8, 7)) == at(7, 8, 7)
