"""How far a stream's query has read, source by source, and which source is which input.

A query has a source for each time its steps read an input, so that of a stream joined with itself there are two. Some engines count each
input once; some read the markers of the starts beside each source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.lake.checkpoint import Position
from floodmark.lifecycle.plan import reading, sources


def numbers(graph: Mapping[str, Any], count: int) -> dict[str, list[int]]:
    """Input name -> the numbers of its sources, in the order the inputs are read.

    Args:
        graph: of the operator, in its canonical form.
        count: of the positions a checkpoint has.
    """
    once = sources(graph)
    read = once if count == len(once) else reading(graph)
    beside = count // len(read)
    by_name: dict[str, list[int]] = {}
    for index, name in enumerate(read if beside else ()):
        by_name.setdefault(name, []).append(index * beside)
    return by_name


def of_inputs(graph: Mapping[str, Any], positions: Sequence[Position]) -> dict[str, Position]:
    """The position in each input, by its name, in the order the inputs are read; empty without positions."""
    return {name: positions[places[0]] for name, places in numbers(graph, len(positions)).items()}


def of_starts(graph: Mapping[str, Any], positions: Sequence[Position]) -> list[Position]:
    """The positions in the markers of the starts; none where the query does not read them."""
    return list(positions[1::2]) if len(positions) == 2 * len(reading(graph)) else []


def of_sources(graph: Mapping[str, Any], positions: Sequence[Position]) -> list[Position]:
    """The positions of an engine that counts each input once, as those of one with a source for each time an input is read; others as they are."""
    if len(positions) != len(sources(graph)):
        return list(positions)
    by_name = of_inputs(graph, positions)
    return [by_name[name] for name in reading(graph)]
