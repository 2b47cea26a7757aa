"""Steps that Python computes without the columns that no later step reads: lookups, and in bounded runs rolling aggregates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from attrs import evolve

from floodmark.semantics.kernels.attempts import is_column
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.functions.growing import grows
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.expressions.expression import expression
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Call, Project, Step, WindowAggregate
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import AnyAggregate, texts

_ALWAYS_COMPUTED = ("count", "min", "max", "first", "last", "min_by", "max_by")
"""Aggregates that have a result of any values."""


def narrowed(step: Step, known: Collection[Step] = ()) -> Step:
    """(step, steps whose rows are known) -> an equal step: for a projection over a lookup one over a lookup of the columns alone that are read.

    As in a plan without a lookup, an expression that nothing reads is not computed. Rows that fail are quarantined with all columns, so a projection that quarantines them stays.
    """
    if not isinstance(step, Project) or step.on_error != "stop" or not _looks_up(step):
        return step
    parent = _only(step.parent, _read(step.columns, step.parent.schema), known)
    return step if parent is None else evolve(step, parent=parent)


def _looks_up(step: Step) -> bool:
    """Whether a lookup lies below projections."""
    while isinstance(step, Project):
        step = step.parent
    return isinstance(step, Call) and isinstance(step.function, Lookup)


def _only(step: Step, wanted: frozenset[str], known: Collection[Step]) -> Step | None:
    """A step with the columns that are wanted; None for a step that is neither a lookup nor a projection over a lookup."""
    if step in known:
        return None
    match step:
        case Project(on_error="stop"):
            columns = _chosen(step, wanted)
            parent = _only(step.parent, _read(columns, step.parent.schema), known)
            return None if parent is None else _with_columns(step, parent, columns)
        case Call(function=Lookup(), on_error="stop", parent=Project() as below) if below not in known:
            parent = _with_columns(below, below.parent, _chosen(below, wanted | {*step.cache}))
            dropped = {*below.schema.names} - {*parent.schema.names}
            return evolve(step, parent=parent, schema=_without(step.schema, dropped))
        case _:
            return None


def _chosen(step: Project, wanted: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The columns of a projection that are wanted; at least one."""
    return tuple(pair for pair in step.columns if pair[0] in wanted) or step.columns[:1]


def _with_columns(step: Project, parent: Step, columns: tuple[tuple[str, str], ...]) -> Project:
    dropped = {*step.schema.names} - {name for name, _ in columns}
    return evolve(step, parent=parent, columns=columns, schema=_without(step.schema, dropped))


def _without(schema: Schema, names: Collection[str]) -> Schema:
    return Schema(tuple(column for column in schema.columns if column.name not in names))


def _read(columns: tuple[tuple[str, str], ...], schema: Schema) -> frozenset[str]:
    """The names of the columns that expressions read."""
    return frozenset(name for _, text in columns for name in expression(text, schema, "column").columns)


def without_unread_aggregates(operator: Operator) -> Operator:
    """(link of a bounded run) -> an equal one without the rolling aggregates that its result does not read; those that may fail stay."""
    stage = stage_of(operator)
    if len(operator.results) != 1 or not isinstance(stage, ElementStage) or not grows(stage):
        return operator
    step, ((name, result),) = stage.step, operator.results
    above: list[Project] = []
    while isinstance(result, Project) and result.on_error == "stop":
        above.append(result)
        result = result.parent
    if result is not step or not above:
        return operator
    wanted = _read(above[-1].columns, step.schema)
    chosen = tuple(pair for pair in step.aggregates if pair[0] in wanted or _may_fail(pair[1], step))
    if not chosen or len(chosen) == len(step.aggregates):
        return operator
    dropped = {aggregate for aggregate, _ in step.aggregates} - {aggregate for aggregate, _ in chosen}
    changed: Step = evolve(step, aggregates=chosen, schema=_without(step.schema, dropped))
    for project in reversed(above):
        changed = evolve(project, parent=changed)
    return replace(operator, results=((name, changed),))


def _may_fail(aggregate: AnyAggregate, step: WindowAggregate) -> bool:
    """Whether some rows may have no value of an aggregate, but an error."""
    if getattr(aggregate, "function", "") not in _ALWAYS_COMPUTED:
        return True
    return not all(is_column(text, step.parent.schema) for text in texts(aggregate))
