"""Expressions that may fail for a row: those that a step computes, and the reasons that the quarantine and errors give."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import ExecutionError
from floodmark.core.time import from_ms
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.patterns.matching import MASK
from floodmark.spec.values.schema import Schema

if TYPE_CHECKING:
    from floodmark.semantics.kernels.stage import AnyStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An expression of a step, over one row.

    Args:
        step: for people: ``filter``, ``column 'ratio'``, ``step 'hourly'``.
        text: Spark SQL.
        type: of the value, Spark SQL.
        schema: columns of the row.
    """

    step: str
    text: str
    type: str
    schema: Schema

    @property
    def unexplained(self) -> str:
        """The reason in the quarantine until the engine's message for the row is known, or if there is none."""
        return f"{self.text}: no value for this row"

    def explained(self, message: str) -> str:
        """The reason in the quarantine.

        Args:
            message: of the engine, for this row.
        """
        return f"{self.text}: {message}"


def attempts(step: steps.Step) -> tuple[Attempt, ...]:
    """The expressions of a stateless step, but for plain columns, which cannot fail."""
    match step:
        case steps.Filter():
            return (Attempt(step="filter", text=step.condition, type="boolean", schema=step.parent.schema),)
        case steps.Project():
            kinds, schema = step.schema.types, step.parent.schema
            return tuple(
                Attempt(step=column_called(name), text=text, type=kinds[name], schema=schema)
                for name, text in step.columns
                if not is_column(text, schema)
            )
        case _:
            return ()


def stage_attempts(stage: AnyStage) -> tuple[tuple[int, Attempt], ...]:
    """(position among the stage's values, expression) of a stateful step, but for plain columns."""
    step = stage.step
    if not isinstance(step, steps.WindowAggregate):
        return ()
    schema, name = step.parent.schema, f"step '{step.uid}'"
    return tuple(
        (place, Attempt(step=name, text=value.sql, type=value.type, schema=schema))
        for place, value in enumerate(stage.values)
        if not is_column(value.sql, schema)
    )


def is_column(text: str, schema: Schema) -> bool:
    """Whether an expression is a plain column of the row."""
    return text.strip("`") in schema


def all_attempts(operator: Operator, stage: AnyStage | None) -> tuple[Attempt, ...]:
    """The expressions of an operator whose failures quarantine rows."""
    walked = dict.fromkeys(step for _, result in operator.results for step in steps.walk(result))
    quarantining_attempts = [attempt for step in walked if steps.quarantines(step) for attempt in attempts(step)]
    if stage is not None and steps.quarantines(stage.step):
        quarantining_attempts += [attempt for _, attempt in stage_attempts(stage)]
    return tuple(quarantining_attempts)


def column_called(column: str) -> str:
    """A column for people: those of patterns have names that nobody wrote."""
    return "a condition of the pattern" if column.startswith(MASK) else f"column '{column}'"


def matching(attempts: Iterable[Attempt], failure: Mapping[str, Any]) -> Iterator[Attempt]:
    """The expressions that may have failed for a row of the quarantine that has no message yet."""
    names = set(json.loads(failure["given"]))
    for attempt in attempts:
        mine = (attempt.step, attempt.unexplained) == (failure["step"], failure["reason"])
        if mine and names == set(attempt.schema.names):
            yield attempt


def quarantining(operator: Operator) -> Operator:
    """The operator with ``on_error="quarantine"`` for each of its expressions."""
    return replace(operator, results=tuple((name, steps.quarantining(step)) for name, step in operator.results))


def stopped(
    operator: Operator, mode: str, failure: Mapping[str, Any], event_time: int | None, sequence: int
) -> ExecutionError:
    """EXECUTION-050: the row that stopped a run.

    Args:
        operator: that ran.
        mode: bounded or unbounded.
        failure: the row, in the form of the quarantine.
        event_time: of the row, ms.
        sequence: of the row, in its input.
    """
    step = operator.stateful
    row = json.loads(failure["given"])
    key = {name: row[name] for name in (step.keys if step else ()) if name in row}
    time = "none" if event_time is None else from_ms(event_time).isoformat()
    about = (
        f"{'' if not key else f'key {json.dumps(key, ensure_ascii=False)}, '}event time {time}, _sequence {sequence}"
    )
    where = f"{mode} run of {operator.version}, {failure['step']}"
    got = f"{failure['reason']} ({about}; the row: {json.dumps(row, ensure_ascii=False)})"
    again = f"floodmark run {operator.name}" + (" --unbounded" if mode == "unbounded" else "")
    fix = f'Nothing is lost or there twice. Mend the expression, or write on_error="quarantine" at its step to set such rows aside; then: floodmark apply, {again}'
    return ExecutionError(where, "a value for every row", got, fix, code="EXECUTION-050")
