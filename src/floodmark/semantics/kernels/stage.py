"""The stage of an operator: its stateful step with the kernel that computes it."""

from __future__ import annotations

from collections.abc import Callable

from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage
from floodmark.semantics.kernels.functions.duplicates import DeduplicateKernel, is_deduplication
from floodmark.semantics.kernels.functions.first_rows import FirstRowsKernel, only_grows
from floodmark.semantics.kernels.functions.growing import GrowingKernel, grows
from floodmark.semantics.kernels.functions.over import OverKernel, is_over
from floodmark.semantics.kernels.functions.pairs import PairsKernel, only_pairs
from floodmark.semantics.kernels.functions.patterns import PatternKernel, is_pattern
from floodmark.semantics.kernels.functions.regular import RegularJoinKernel, is_regular_join
from floodmark.semantics.kernels.functions.reordered import OverChangingKernel, is_over_changing
from floodmark.semantics.kernels.functions.rolling import RollingKernel, rolls
from floodmark.semantics.kernels.functions.top import AtOnceKernel, TopKernel, is_at_once, is_top
from floodmark.semantics.kernels.joins import JoinKernel, JoinStage
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.kernels.panes import RecordWindowKernel
from floodmark.semantics.kernels.process import ProcessKernel
from floodmark.semantics.kernels.sessions import SessionKernel, has_final_sessions
from floodmark.semantics.state.store import Store
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.keyed.regular import RegularJoin

AnyStage = Stage | ElementStage | ProcessStage | JoinStage
AnyKernel = ColumnarWindowKernel | RecordWindowKernel | RollingKernel | ProcessKernel | RegularJoinKernel | JoinKernel


def kernel_of(stage: AnyStage, store: Store) -> AnyKernel:
    """The kernel of one key group of a stage."""
    match stage:
        case Stage():
            return ColumnarWindowKernel(stage, store)
        case ElementStage():
            if rolls(stage):
                return RollingKernel(stage, store)
            if grows(stage):
                return GrowingKernel(stage, store)
            return (SessionKernel if has_final_sessions(stage) else RecordWindowKernel)(stage, store)
        case ProcessStage():
            return _of_process(stage, store)
        case JoinStage():
            return JoinKernel(stage, store)


def _of_process(stage: ProcessStage, store: Store) -> AnyKernel:
    """The kernel of a process function: some of floodmark's own have one each."""
    kernels: tuple[tuple[Callable[[ProcessStage], bool], Callable[[ProcessStage, Store], AnyKernel]], ...] = (
        (is_pattern, PatternKernel),
        (is_over_changing, OverChangingKernel),
        (is_over, OverKernel),
        (only_pairs, PairsKernel),
        (is_regular_join, RegularJoinKernel),
        (only_grows, FirstRowsKernel),
        (is_top, TopKernel),
        (is_at_once, AtOnceKernel),
        (is_deduplication, DeduplicateKernel),
    )
    return next((kernel for fits, kernel in kernels if fits(stage)), ProcessKernel)(stage, store)


def stage_of(operator: Operator) -> AnyStage | None:
    """The stage of a link, or of an operator of one stage; None for one without state.

    Windows whose answer is a function of the set of their rows are computed in columns, as are interval joins; all others row by row.
    """
    assert len(operator.stages) <= 1, f"{operator.name} is computed by its links"
    step, by_time = operator.stateful, operator.order == "event_time"
    match step:
        case None:
            return None
        case steps.KeyedProcess():
            recorded = len(operator.inputs) == 1 and operator.inputs[0].upstream is None
            revised = any(map(_takes_back, operator.inputs))
            return ProcessStage(step, by_time, recorded=recorded, revised=revised)
        case steps.IntervalJoin():
            return JoinStage(step)
        case _ if step.columnar:
            return Stage.of(step, revisable=any(given.revisable for given in operator.inputs))
        case _:
            return ElementStage(step, by_time, revisable=any(given.revisable for given in operator.inputs))


def _takes_back(read: Input) -> bool:
    """Whether rows of an input are ever retracted: those of an inner join inside an operator only come, as long as its own rows do."""
    if not read.revisable or not read.inner or read.upstream is None:
        return read.revisable
    link = read.upstream.operator
    function = link.stateful.function if isinstance(link.stateful, steps.KeyedProcess) else None
    joins = function is not None and isinstance(function.function, RegularJoin) and function.function.kind == "inner"
    return not joins or any(map(_takes_back, link.inputs))


def closed(stage: AnyStage) -> None:
    """Close the functions of a stage, after the last row."""
    if isinstance(stage, ProcessStage):
        stage.close()
