"""The stage of an operator: its stateful step with the kernel that computes it."""

from __future__ import annotations

from floodmark.semantics.elements import ElementStage
from floodmark.semantics.kernel import Kernel, Stage
from floodmark.semantics.panes import ElementKernel
from floodmark.semantics.store import Store
from floodmark.spec.operator import Operator

AnyStage = Stage | ElementStage


def kernel_of(stage: AnyStage, store: Store) -> Kernel | ElementKernel:
    """The kernel of one key group of a stage."""
    return Kernel(stage, store) if isinstance(stage, Stage) else ElementKernel(stage, store)


def stage_of(operator: Operator) -> AnyStage | None:
    """The stage of an operator; None for one without state.

    Windows whose answer is a function of the set of their rows are computed in columns, all others row by row.
    """
    step = operator.stateful
    if step is None:
        return None
    if step.columnar:
        return Stage.of(step, revisable=any(given.revisable for given in operator.inputs))
    return ElementStage(step, by_time=operator.order == "event_time")
