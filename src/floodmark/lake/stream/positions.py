"""Maps the positions of a query's sources to the inputs of its operator.

A query has one source per read of an input by its steps, so a stream joined with itself has two sources. Some engines count each input once; some add a
source for the markers of the starts beside each source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.lake.stream.checkpoint import Position
from floodmark.lifecycle.plan import reading, sources


def numbers(graph: Mapping[str, Any], count: int) -> dict[str, list[int]]:
    """Input name -> indexes of its sources, in the order the inputs are read.

    Args:
        graph: canonical form of the operator.
        count: number of positions in the checkpoint.
    """
    once = sources(graph)
    read = once if count == len(once) else reading(graph)
    beside = count // len(read)
    by_name: dict[str, list[int]] = {}
    for index, name in enumerate(read if beside else ()):
        by_name.setdefault(name, []).append(index * beside)
    return by_name


def of_inputs(graph: Mapping[str, Any], positions: Sequence[Position]) -> dict[str, Position]:
    """Input name -> position, in the order the inputs are read; empty without positions."""
    return {name: positions[places[0]] for name, places in numbers(graph, len(positions)).items()}


def of_starts(graph: Mapping[str, Any], positions: Sequence[Position]) -> list[Position]:
    """The positions in the markers of the starts; empty if the query does not read these."""
    return list(positions[1::2]) if len(positions) == 2 * len(reading(graph)) else []


def of_sources(graph: Mapping[str, Any], positions: Sequence[Position]) -> list[Position]:
    """One position per read of an input. Expands positions of an engine that counts each input once; others stay unchanged."""
    if len(positions) != len(sources(graph)):
        return list(positions)
    by_name = of_inputs(graph, positions)
    return [by_name[name] for name in reading(graph)]
