"""Rollback: the states to which a group of streams can roll back together. Decided here, done by ``lake.restore.rollback``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion


class State(Protocol):
    """A state from which a stream could resume: a savepoint, or a micro-batch that its checkpoint retains."""

    @property
    def deployed(self) -> Deployed:
        """The definition of the state."""

    @property
    def inputs(self) -> Mapping[str, TableVersion]:
        """Input name -> the position up to which the input is read."""

    @property
    def outputs(self) -> tuple[TableVersion, ...]:
        """The versions of the output tables."""


Some = TypeVar("Some", bound=State)


Agrees = Callable[[TableVersion, TableVersion, frozenset[str]], bool]
"""(read, restored, columns) -> True if the reader can resume: no data commit lies between the versions, and the restored one has every column."""


def cut(operators: Sequence[tuple[str, Sequence[Some]]], agrees: Agrees) -> dict[str, Some] | None:
    """Finds a consistent cut: operator -> a state, such that each stream has read exactly what its upstream streams have written.

    None if no combination of states is consistent.

    Args:
        operators: (name, states from which the stream could resume, the best first); upstream before downstream.
        agrees: whether a reader can resume at a version of a table.
    """
    return _cut(operators, agrees, {})


def _cut(left: Sequence[tuple[str, Sequence[Some]]], agrees: Agrees, chosen: dict[str, Some]) -> dict[str, Some] | None:
    if not left:
        return chosen
    (name, states), *downstream = left
    written = {output.id: output for state in chosen.values() for output in state.outputs}
    now = {output.table: output.id for output in written.values()}
    for state in states:
        if any(given.id and given.id != now.get(given.table, given.id) for given in state.inputs.values()):
            continue  # the stream has read a table that was created anew since
        read = [(given, written[given.id]) for given in state.inputs.values() if given.id in written]
        needs = state.deployed.needs
        if all(given.file < 0 and agrees(given, output, needs[given.table]) for given, output in read):
            states_chosen = _cut(downstream, agrees, {**chosen, name: state})
            if states_chosen is not None:
                return states_chosen
    return None


def moves(state: State, written: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The inputs of a stream that read tables which are restored with it: (position of the input, table).

    Args:
        state: to which the stream rolls back.
        written: id of each restored table -> its name.
    """
    for position, input_version in enumerate(state.inputs.values()):
        if input_version.id in written:
            yield position, written[input_version.id]
