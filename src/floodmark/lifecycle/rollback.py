"""Rollback: which streams go back to which savepoints together, and why that would be wrong. Decided here, done by an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What going back to a version takes out of a table.

    Args:
        table: its name.
        commits: of the stream.
        rows: of these commits.
        backfills: intervals of bounded runs that are undone with it, in words.
        foreign: commits that floodmark did not make, in words.
        rebuilds: how often it was computed anew since; what it held before comes back.
    """

    table: str
    commits: int = 0
    rows: int = 0
    backfills: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rebuilds: int = 0


def undone(table: str, commits: Iterable[Mapping[str, Any]]) -> Undone:
    """What a table loses.

    Args:
        table: its name.
        commits: those behind the version it goes back to: ``operation`` and, of floodmark's own, ``said``.
    """
    batches, rows, rebuilds, backfills, foreign = 0, 0, 0, [], []
    for commit in commits:
        said, operation = commit.get("said"), str(commit["operation"])
        if said is not None:
            if said["mode"] == "bounded":
                backfills.append(str(commit["interval"]))
            elif said["mode"] == "unbounded":
                batches, rows = batches + (not said.get("settled")), rows + int(said["rows"])
            rebuilds += said["mode"] == "rebuild"
        else:
            foreign.append(f"{operation} at version {commit['version']}")
    return Undone(
        table=table, commits=batches, rows=rows, backfills=tuple(backfills), foreign=tuple(foreign), rebuilds=rebuilds
    )


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
    for state in states:
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
