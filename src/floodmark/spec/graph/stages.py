"""Stages: the stateful steps of a graph in the order in which they are computed, each cut from the stages before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve

from floodmark.core.errors import DefinitionError
from floodmark.spec.graph.steps import MOST_KEY_GROUPS, STATEFUL, Read, Stateful, Step, Union, walk


def stages_of(results: Iterable[Step]) -> tuple[Stateful, ...]:
    """The stateful steps of some results, each once, behind all steps that it reads."""
    walked = (step for result in results for step in walk(result))
    return tuple(dict.fromkeys(step for step in walked if isinstance(step, STATEFUL)))


def name_of(stage: Stateful) -> str:
    """The name of the rows of a stage, as an input of the stages behind it."""
    return f"step {stage.uid}"


def first_group(number: int) -> int:
    """The number that key group 0 of a stage has in the state of a stream. Those of the first stage have their own numbers."""
    return number * MOST_KEY_GROUPS


def nearest(step: Step) -> Iterator[Stateful | Read]:
    """The stages and inputs whose rows a step reads with no other stage in between; the step itself if it is a stage or an input."""
    if isinstance(step, (*STATEFUL, Read)):
        yield step
        return
    for parent in step.parents:
        yield from nearest(parent)


def apart(step: Step, replaced: Mapping[Stateful, Read]) -> Step:
    """The step and the steps before it, with reads in place of some stages."""
    if isinstance(step, STATEFUL) and step in replaced:
        return replaced[step]
    return _rebuilt(step, tuple(apart(parent, replaced) for parent in step.parents))


def with_names(results: Iterable[tuple[str, Step]], where: str, own: str) -> tuple[tuple[str, Step], ...]:
    """Named results whose stages have different names; only names that the author has left to the operator change.

    Args:
        results: of an operator.
        where: for errors.
        own: the name of a stage to which its author has given none: the operator's.

    Raises:
        DefinitionError: DEFINITION-450, two stages of one name.
    """
    done: dict[Step, Step] = {}
    taken: set[str] = set()

    def named(step: Step) -> Step:
        if step in done:
            return done[step]
        new = _rebuilt(step, tuple(named(parent) for parent in step.parents))
        if isinstance(new, STATEFUL):
            if new.uid in taken and new.uid != own:
                fix = "Give each of them a name of its own: .aggregate(..., uid='daily')."
                raise DefinitionError(
                    where, "stateful steps of different names", f"uid={new.uid!r} twice", fix, code="DEFINITION-450"
                )
            number = next(n for n in range(1, len(taken) + 2) if (f"{own}_{n}" if n > 1 else own) not in taken)
            uid = new.uid if new.uid not in taken else f"{own}_{number}"
            taken.add(uid)
            new = evolve(new, uid=uid)
        done[step] = new
        return new

    return tuple((name, named(result)) for name, result in results)


def _rebuilt(step: Step, parents: tuple[Step, ...]) -> Step:
    """The step over other parents."""
    match step:
        case Read():
            return step
        case Union():
            return evolve(step, parents=parents)
        case _:
            return evolve(step, parent=parents[0])
