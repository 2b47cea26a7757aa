"""What the stages of an operator may not do, refused where the operator is defined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import evolve

from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.spec.graph import stages, steps
from floodmark.spec.keyed.matching import TemporalJoinOfChanges
from floodmark.spec.keyed.process import ProcessFunction
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.windowing.aggregates import check_retracts
from floodmark.spec.windowing.windows import bounded_in_time

if TYPE_CHECKING:
    from floodmark.spec.graph.operator import Operator, OutputRef


MOST_DEPTH = 160
"""Steps one behind the other at most: each part of floodmark and of an engine that reads a graph calls itself for every step of a path."""


def check_depth(results: Iterable[steps.Step], where: str) -> None:
    """Refuse a graph with a longer path than ``MOST_DEPTH`` steps, before anything follows the path.

    Args:
        results: of an operator.
        where: for errors.

    Raises:
        DefinitionError: DEFINITION-475.
    """
    layer, depth = {id(step): step for step in results}, 1
    while layer := {id(parent): parent for step in layer.values() for parent in step.parents}:
        depth += 1
        if depth > MOST_DEPTH:
            fix = (
                "Give union all of its streams at once, first.union(second, third), and filter all conditions at once, "
                "joined by AND; or split it into two operators and bind one to the other: @operator(inputs={...: first_operator})."
            )
            expected = f"{MOST_DEPTH} steps or fewer one behind the other"
            raise DefinitionError(where, expected, "more", fix, code="DEFINITION-475")


def check_stages(operator: Operator, where: str) -> None:
    """Refuse the stages of an operator that none of the engines can run.

    Args:
        operator: whose graph is complete.
        where: for errors.

    Raises:
        CapabilityError: CAPABILITY-001 a stage beside a plain output, 003 a stage that takes nothing back reads rows that may be taken back, 095 what
            only the one stage of an operator can have, 098 a call or a lookup reads rows that are taken back at another time.
        DefinitionError: as ``check_retracts``.
    """
    plain = [label for label, result in operator.results if not stages.stages_of([result])]
    if operator.stages and plain:
        got = f"a stateful step beside the plain output '{plain[0]}'"
        fix = "Split it into two operators and bind one to the other: @operator(inputs={...: first_operator})."
        raise CapabilityError(where, "stateful steps that all outputs go through", got, fix, code="CAPABILITY-001")
    _check_several(operator, where)
    for call in operator.calls:
        if _retimes(operator, call.parent):
            raise _asked_again(call, where)
    for link in operator.links:
        _check_stage(link, where)


def _asked_again(call: steps.Call, where: str) -> CapabilityError:
    """Answers are recorded for a row and its event time, so that a retraction with another one would be asked about anew."""
    if isinstance(call.function, Lookup):
        table = call.function.table.name
        what, got = f"lookup in {table}", f"when '{table}' may have other rows"
        fix = f"Look up before the step whose results change: join '{table}' in a subquery, and aggregate or join around it. Or land the table as a source."
    else:
        what, got = f"call '{call.uid}'", "when the answer may be another one"
        fix = "Call before the step whose results change: .call(...), and then key_by and what aggregates or joins."
    expected = f"rows before the {what} whose retractions have their event time"
    return CapabilityError(
        where, expected, f"rows that are taken back at another time, {got}", fix, code="CAPABILITY-098"
    )


def _check_several(operator: Operator, where: str) -> None:
    """Refuse several stages of which one has what only the one stage of an operator can have."""
    if len(operator.stages) < 2:  # noqa: PLR2004 - several
        return
    sides = [output.name for output in operator.outputs if output.side is not None]
    clocked = next((step for step in operator.stages if step.clocked), None)
    got = f"'{clocked.uid}', which waits for processing time" if clocked is not None else ""
    if not got and len(set(sides)) < len(sides):
        got = f"two outputs '{next(name for name in sides if sides.count(name) > 1)}' beside the results"
    if got:
        fix = "Split it into two operators and bind one to the other: @operator(inputs={...: first_operator})."
        raise CapabilityError(
            where, "several stateful steps of event time, with one output of a name", got, fix, code="CAPABILITY-095"
        )


def _check_stage(operator: Operator, where: str) -> None:
    stateful, inputs = operator.stages, operator.inputs
    revised = [input_.name for input_ in inputs if input_.revisable]
    special = next((s for s in stateful if not _takes_back(s) or _versions_change(operator, s)), None)
    if special is not None and revised:
        got = f"'{revised[0]}', whose rows may be taken back"
        fix = (
            "Read an operator without allowed_lateness, early panes or rolling aggregates; or use rolling aggregates, regular_join, or Tumbling, "
            "Sliding, Calendar or Global with aggregates that do not depend on order."
        )
        expected = f"an input of final rows for {special.describe_window()}"
        if isinstance(special, steps.WindowAggregate):
            blames = _takes_back(evolve(special, on_error="stop"))
            expected += (
                ' with aggregates of its own and on_error="quarantine"'
                if blames
                else " with order or a trigger of its own"
            )
            fix = f'Leave out on_error="quarantine" at this window; or {fix[0].lower()}{fix[1:]}' if blames else fix
        if isinstance(special, steps.KeyedProcess) and isinstance(special.function.function, ProcessFunction):
            fix = f"Write on_retract on {type(special.function.function).__name__}; or read final rows: {fix[0].lower()}{fix[1:]}"
        raise CapabilityError(where, expected, got, fix, code="CAPABILITY-003")
    for step in stateful if revised else ():
        if isinstance(step, steps.WindowAggregate):
            for name, aggregate in step.aggregates:
                check_retracts(aggregate, step.parent.schema, f"{where}, column '{name}'")


def _retimes(operator: Operator, step: steps.Step) -> bool:
    """Whether rows of a step may be taken back by retractions with another event time than theirs."""
    for near in stages.nearest(step):
        if not operator.may_take_back(near):
            continue
        if isinstance(near, steps.Read):
            read = next(one for one in operator.inputs if one.name == near.input)
            if read.landed or (read.upstream is not None and _result_retimes(read.upstream)):
                return True
        elif not isinstance(near, steps.WindowAggregate) or not bounded_in_time(near.window):
            return True
    return False


def _result_retimes(output: OutputRef) -> bool:
    """As ``_retimes``, of a result of another operator."""
    results = dict(output.operator.results)
    return output.name in results and _retimes(output.operator, results[output.name])


def _versions_change(operator: Operator, step: steps.Stateful) -> bool:
    """Whether a join with versions, of rows that may be taken back, has versions that may be too."""
    if not isinstance(step, steps.KeyedProcess) or not isinstance(step.function.function, TemporalJoinOfChanges):
        return False
    assert isinstance(step.parent, steps.Union)
    _, versions = step.parent.parents
    return any(map(operator.may_take_back, stages.nearest(versions)))


def _takes_back(step: steps.Stateful) -> bool:
    """Whether a stateful step handles retractions of its input."""
    if isinstance(step, steps.KeyedProcess):
        return step.function.function.takes_back
    return isinstance(step, steps.WindowAggregate) and (step.columnar or step.rolling)
