"""The columns of its inputs that a stream reads. The other columns are null in its micro-batches."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.semantics.kernels.attempts import is_column
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.expressions.expression import expression
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import Schema

_Needed = dict[str, set[str]]


def columns_read(operator: Operator) -> dict[str, frozenset[str]]:
    """(operator) -> input name -> the columns that the operator's steps name; all columns where a function, a quarantine or a state takes whole rows."""
    needed: _Needed = {}
    for link in operator.links:
        whole = any(steps.quarantines(step) for _, result in link.results for step in steps.walk(result))
        for _, result in link.results:
            _add(needed, link, result, None, whole=whole)
    return {name: frozenset(columns) for name, columns in needed.items()}


def _add(needed: _Needed, link: Operator, step: steps.Step, wanted: set[str] | None, *, whole: bool) -> None:
    """Add the columns of the inputs from which a step's columns are computed.

    Args:
        needed: input name -> columns of the input; changed here.
        link: of the step.
        step: stateless, or the stage of the link.
        wanted: names of the step's columns that later steps read; None for all.
        whole: True if the link quarantines rows, which keep all of their columns.
    """
    match step:
        case steps.Read():
            names = step.schema.names if wanted is None or whole else wanted
            needed.setdefault(step.input, set()).update(names)
            return
        case steps.Filter() if wanted is not None:
            of_parents: set[str] | None = wanted | _named([step.condition], step.parent.schema, link)
        case steps.Project():
            schema = step.parent.schema
            texts = (text for name, text in step.columns if _computed(text, schema) or wanted is None or name in wanted)
            of_parents = _named(texts, schema, link)
        case steps.Union():
            of_parents = wanted
        case steps.WindowAggregate():
            of_parents = _of_windows(link, step)
        case _:
            of_parents = None
    for parent in step.parents:
        _add(needed, link, parent, of_parents, whole=whole)


def _of_windows(link: Operator, step: steps.WindowAggregate) -> set[str] | None:
    """The columns of their parent that windows read; None for all."""
    stage = stage_of(link)
    if not isinstance(stage, (Stage, ElementStage)) or stage.step is not step:
        return None
    if stage.whole_rows or step.reduces or step.late == "side_output" or step.broadcast is not None:
        return None
    texts = (value.sql for value in stage.values)
    return {*step.keys, *_named(texts, step.parent.schema, link)}


def _computed(text: str, schema: Schema) -> bool:
    """Whether an expression is more than a column. Such an expression may have no value for a row, which stops the stream even if no step reads its result."""
    return not is_column(text, schema)


def _named(texts: Iterable[str], schema: Schema, link: Operator) -> set[str]:
    """The columns that some expressions name."""
    where = f"operator '{link.name}'"
    return {name for text in texts for name in expression(text, schema, where).columns}
