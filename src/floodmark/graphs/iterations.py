"""Iterations over bounded tables: the whole state per superstep (bulk), or changed rows alone that look for others (delta)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import DefinitionError, ExecutionError, shown
from floodmark.engines.frames.expressions import expr
from floodmark.graphs.supersteps import Superstep, Supersteps
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.source import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE = "_change"
"""Column of a state that says how much a row has changed in its superstep: 0.0 for not at all."""

MAX_SUPERSTEPS = 100
_KEEPS_ROWS = "keeps_rows"
"""Attribute of a step whose state has the rows of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterated:
    """What an iteration came to.

    Args:
        result: path of its Delta table.
        supersteps: until it converged, without the initial state.
        resumed: number of the superstep behind which this run has begun; None for a run from the beginning.
        rows: of the result.
        change: of the last superstep.
        seconds: of this run.
    """

    result: str
    supersteps: int
    resumed: int | None
    rows: int
    change: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """A state that is computed anew from itself until it changes no more.

    Args:
        initial: (session) -> the state before the first superstep, with a column ``_change`` of doubles.
        step: (state) -> the next state, of the same columns, with ``_change`` of each row.
        definition: what the results depend on beside the inputs, as JSON values: a run resumes the supersteps of an equal definition only.
        tolerance: the iteration ends when the sum of ``_change`` is at most that; 0 for when nothing changes.
        max_supersteps: after which the iteration fails.
        keys: columns that name a row, for messages.
    """

    initial: Callable[[SparkSession], DataFrame]
    step: Callable[[DataFrame], DataFrame]
    definition: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    max_supersteps: int = MAX_SUPERSTEPS


def iterate(session: SparkSession, lake: Lake, name: str, iteration: Iteration, *, anew: bool = False) -> Iterated:
    """Run an iteration to its end, or resume it where a killed run has left it.

    Each superstep is a Delta table, and a barrier: the next one reads it once it is whole. Nothing comes to the driver but its rows' count and the
    sum of their changes. The result is a Delta table at ``graphs/<name>/result`` of the lake, replaced in one commit.

    Args:
        session: of Spark or of Sail.
        lake: holds supersteps and result.
        name: of the iteration.
        iteration: what to compute.
        anew: begin at the initial state, and remove supersteps that are there.

    Raises:
        DefinitionError: DEFINITION-360 settings that can end nothing, DEFINITION-368 a state without the columns it should have.
        ExecutionError: EXECUTION-130 it has not converged, the supersteps stay; EXECUTION-134 a change that is no number of 0 or more;
            EXECUTION-135 a delta step with several candidates for a key.
        LifecycleError: LIFECYCLE-003 another run of that name is at work, LIFECYCLE-250 supersteps of another definition are there.
    """
    check_name(name, f"iteration '{name}'")
    with exclusive(lake, "graphs", name, "run"):
        supersteps = Supersteps(lake, name)
        supersteps.begin(iteration.definition, anew=anew)
        return run(session, supersteps, iteration)


def run(session: SparkSession, supersteps: Supersteps, iteration: Iteration) -> Iterated:
    """The supersteps of an iteration that has begun, and its result.

    Raises:
        DefinitionError, ExecutionError: as ``iterate``.
    """
    where = f"iteration '{supersteps.name}'"
    if not _is_number(iteration.max_supersteps, 1, int) or not _is_number(iteration.tolerance, 0, float):
        got = f"max_supersteps={iteration.max_supersteps}, tolerance={iteration.tolerance}"
        fix = "max_supersteps is 1 or more, tolerance 0 or more."
        raise DefinitionError(where, "settings that end an iteration", got, fix, code="DEFINITION-360")
    began, last = time.monotonic(), supersteps.last()
    resumed = None if last is None else last.number
    measured = partial(_measured, where=where)
    if last is None:
        last = supersteps.write(0, _checked(iteration.initial(session), None, where), measured)
    done = last
    while done.change > iteration.tolerance:
        if done.number >= iteration.max_supersteps:
            raise _diverging(supersteps, iteration, done)
        state = supersteps.read(session, done)
        new = _checked(iteration.step(state), state, where)
        rows = done.rows if getattr(iteration.step, _KEEPS_ROWS, False) else None
        done = supersteps.write(done.number + 1, new, partial(measured, expected=rows))
    columns = [column for column in supersteps.read(session, done).columns if column != CHANGE and column[:1] != "_"]
    supersteps.finish(session, done, columns)
    return Iterated(
        result=supersteps.result,
        supersteps=done.number,
        resumed=resumed,
        rows=done.rows,
        change=done.change,
        seconds=time.monotonic() - began,
    )


def delta_step(
    candidates: Callable[[DataFrame, DataFrame], DataFrame], *, key: str, better: str
) -> Callable[[DataFrame], DataFrame]:
    """The step of a delta iteration: rows that have changed look for rows that should, and the iteration ends once none has changed.

    Args:
        candidates: (state, the rows of the state that the last superstep has changed) -> at most one row per key: the key, and the new values
            of columns of the state, under their names.
        key: column that names a row of the state.
        better: Spark SQL over ``new.column`` and ``old.column``: whether the candidate replaces the row.
    """

    def step(state: DataFrame) -> DataFrame:
        offered = candidates(state, state.filter(f"`{CHANGE}` > 0"))
        values = [column for column in offered.columns if column != key]
        new = offered.selectExpr(f"`{key}`", f"struct({', '.join(f'`{value}`' for value in values)}) AS new")
        others = [column for column in state.columns if column not in {*values, key, CHANGE}]
        old = state.selectExpr(
            f"`{key}`",
            *(f"`{name}`" for name in others),
            f"struct({', '.join(f'`{value}`' for value in values)}) AS old",
        )
        joined = old.join(new, on=key, how="left").withColumn(
            "_better", expr(state, f"new IS NOT NULL AND coalesce({better}, false)")
        )
        texts = {name: f"`{name}`" for name in (key, *others)}
        texts |= {value: f"CASE WHEN _better THEN new.`{value}` ELSE old.`{value}` END" for value in values}
        texts[CHANGE] = "CASE WHEN _better THEN CAST(1 AS double) ELSE CAST(0 AS double) END"
        return joined.selectExpr(*(f"{texts[name]} AS `{name}`" for name in state.columns))

    setattr(step, _KEEPS_ROWS, True)
    return step


def _is_number(value: object, least: int, kind: type) -> bool:
    return isinstance(value, (int, kind)) and not isinstance(value, bool) and value >= least  # type: ignore[operator]  # a number


def _checked(state: DataFrame, before: DataFrame | None, where: str) -> DataFrame:
    """A state with its columns: those of the one before.

    Raises:
        DefinitionError: DEFINITION-368.
    """
    columns = getattr(state, "columns", None)
    wanted = [CHANGE] if before is None else before.columns
    fits = columns is not None and set(wanted) <= set(columns) and (before is None or len(columns) == len(wanted))
    if not fits or columns == [CHANGE]:
        others = "columns of its own" if before is None else "no other"
        expected = f"a DataFrame with {', '.join(wanted)}, and {others}"
        got = shown(state) if columns is None else ", ".join(columns)
        fix = f"Return selectExpr(..., 'abs(new - old) AS {CHANGE}') with the columns of the initial state."
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-368")
    return state


def _measured(state: DataFrame, *, where: str, expected: int | None = None) -> tuple[int, float]:
    """(rows, sum of changes) of a state.

    Args:
        state: as written.
        where: the iteration, for errors.
        expected: number of rows that it must have; None for any.

    Raises:
        ExecutionError: EXECUTION-134 a change that is no number of 0 or more, EXECUTION-135 other rows than expected.
    """
    changes = state.selectExpr(f"CAST(`{CHANGE}` AS double) AS c")
    changes = changes.selectExpr("c", "CASE WHEN c >= 0 AND NOT isnan(c) THEN 0 ELSE 1 END AS wrong")
    texts = ("count(*) AS n", "sum(c) AS c", "sum(wrong) AS w")
    ((rows, change, wrong),) = [tuple(row) for row in changes.agg(*(expr(changes, text) for text in texts)).collect()]
    if wrong:
        got, fix = (
            f"{wrong:,} of {rows:,} rows without",
            f"Take the absolute value, and a number for null and NaN: coalesce(abs(...), 0) AS {CHANGE}.",
        )
        raise ExecutionError(where, f"a '{CHANGE}' of 0 or more in each row", got, fix, code="EXECUTION-134")
    if expected is not None and rows != expected:
        fix = "Group the candidates by the key: groupBy(key).agg(expr(state, 'min(distance) AS distance'))."
        got = f"{rows:,} rows of {expected:,}"
        raise ExecutionError(where, "at most one candidate for each key", got, fix, code="EXECUTION-135")
    return int(rows), float(change or 0.0)


def _diverging(supersteps: Supersteps, iteration: Iteration, done: Superstep) -> ExecutionError:
    got = f"a change of {done.change:g} over {done.rows:,} rows in superstep {done.number}"
    fix = f"Run it again with more supersteps, which resumes behind this one: max_supersteps={2 * iteration.max_supersteps}; or with a larger tolerance and anew=True."
    expected = f"a change of at most {iteration.tolerance:g} within {iteration.max_supersteps:,} supersteps"
    return ExecutionError(f"iteration '{supersteps.name}'", expected, got, fix, code="EXECUTION-130")
