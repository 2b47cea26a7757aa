"""Rollback: which streams go back to which savepoints together, and why that would be wrong. Decided here, done by an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion


class State(Protocol):
    """A state a stream could go on from: a savepoint, or a micro-batch its checkpoint keeps."""

    @property
    def deployed(self) -> Deployed:
        """The definition it goes on under."""

    @property
    def inputs(self) -> Mapping[str, TableVersion]:
        """Input name -> how far it is read."""

    @property
    def outputs(self) -> tuple[TableVersion, ...]:
        """What is written."""


Some = TypeVar("Some", bound=State)


Agrees = Callable[[TableVersion, TableVersion, frozenset[str]], bool]
"""Whether nothing was written to a table between the version that was read and the one it goes back to, which has these columns."""


def cut(operators: Sequence[tuple[str, Sequence[Some]]], agrees: Agrees) -> dict[str, Some] | None:
    """For each stream a state of it such that each has read exactly what those before it have written; None where there is none.

    Args:
        operators: name and states it could go on from, the best first; upstream before downstream.
        agrees: whether a reader can go on at a version of a table.
    """
    return _cut(operators, agrees, {})


def _cut(left: Sequence[tuple[str, Sequence[Some]]], agrees: Agrees, chosen: dict[str, Some]) -> dict[str, Some] | None:
    if not left:
        return chosen
    (name, states), *rest = left
    written = {output.id: output for state in chosen.values() for output in state.outputs}
    now = {output.table: output.id for output in written.values()}
    for state in states:
        if any(given.id and given.id != now.get(given.table, given.id) for given in state.inputs.values()):
            continue  # it has read a table that was made anew since
        read = [(given, written[given.id]) for given in state.inputs.values() if given.id in written]
        needs = state.deployed.needs
        if all(given.file < 0 and agrees(given, output, needs[given.table]) for given, output in read):
            found = _cut(rest, agrees, {**chosen, name: state})
            if found is not None:
                return found
    return None


def moves(state: State, written: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Which inputs of a stream, by place, read tables that go back with it.

    Args:
        state: it goes back to.
        written: id of such a table -> its name.
    """
    for place, given in enumerate(state.inputs.values()):
        if given.id in written:
            yield place, written[given.id]
