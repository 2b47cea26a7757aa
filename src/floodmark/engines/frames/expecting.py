"""Rows that do not meet an expectation are marked for the quarantine, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from floodmark.core.sql import spark_literal
from floodmark.engines.frames.attempts import as_json
from floodmark.engines.frames.expressions import Rendering, guarded, on_sail, with_columns
from floodmark.semantics.kernels.failures import FAILURE_TYPE, unmet_texts
from floodmark.semantics.kernels.failures import unmet as unmet_failure
from floodmark.spec.graph.steps import Expect
from floodmark.spec.values.schema import FAILED, FAILURE, QUARANTINE, RETRACTION, ROW

FILTERED = 4
"""``_kind`` of a row that a filter has taken out; only inside frames of Sail, never in a table."""
_UNMET = "_unmet"
"""The column with the number of the first expectation that a row does not meet; null for a row that meets all."""


def expected(rows: DataFrame, step: Expect, rendering: Rendering) -> DataFrame:
    """Rows, of which those are ``FAILED`` that do not meet an expectation, with the reason.

    A retraction that does not meet an expectation is left out, as the row that it takes back was quarantined.

    Args:
        rows: stamped.
        step: the expectations.
        rendering: of expressions, for the session of the rows.
    """
    conditions = [rendering(unmet, step.parent.schema) for _, _, unmet in step.expectations]
    first = " ".join(f"WHEN ({condition}) THEN {number}" for number, condition in enumerate(conditions))
    rows = with_columns(rows, {_UNMET: guarded(f"CASE {first} END")})
    failed, left_out = f"`{_UNMET}` IS NOT NULL", f"`_kind` = {RETRACTION}"
    if FAILURE not in rows.columns:
        rows = with_columns(rows, {FAILURE: f"CAST(NULL AS struct<{QUARANTINE.ddl()}>)"})
    if on_sail(rows):
        kind = f"CASE WHEN NOT ({failed}) THEN `_kind` WHEN {left_out} THEN {FILTERED} ELSE {FAILED} END"
        rows = with_columns(rows, {"_kind": f"CAST({kind} AS int)"})
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in rows.drop(_UNMET).dtypes)
        return rows.mapInArrow(_reasons(step), ddl)
    rows = rows.filter(f"NOT ({failed} AND {left_out})")
    reasons = {FAILURE: _reason(step), "_kind": f"CASE WHEN {failed} THEN {FAILED} ELSE `_kind` END"}
    return with_columns(rows, reasons).drop(_UNMET)


def _reason(step: Expect) -> str:
    """SQL of the failure on Spark."""
    row = ", ".join(f"{as_json(name, kind)} AS `{name}`" for name, kind in step.schema.types.items())
    row_json = f"to_json(struct({row}), map('ignoreNullFields', 'false'))"
    cases = [
        f"WHEN {number} THEN named_struct('step', {spark_literal(of)}, 'key', CAST(NULL AS string), 'reason', {spark_literal(why)}, 'given', {row_json})"
        for number, (name, description, _) in enumerate(step.expectations)
        for of, why in [unmet_texts(name, description)]
    ]
    return f"CASE WHEN `_kind` > {ROW} THEN `{FAILURE}` ELSE CASE `{_UNMET}` {' '.join(cases)} END END"


def _reasons(step: Expect) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The failure of each row on Sail, in the form in which failures of functions are written."""
    names, expectations = step.schema.names, step.expectations

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            unmet = table[_UNMET].to_pylist()
            table = table.drop_columns([_UNMET])
            indices = [index for index, number in enumerate(unmet) if number is not None]
            if indices:
                failures = table[FAILURE].to_pylist()
                rows = table.select(list(names)).take(indices).to_pylist()
                for index, row in zip(indices, rows, strict=True):
                    name, description, _ = expectations[unmet[index]]
                    failures[index] = unmet_failure(name, description, row)
                column = pa.array(failures, FAILURE_TYPE)
                table = table.set_column(table.column_names.index(FAILURE), FAILURE, column)
            yield from table.combine_chunks().to_batches()

    return run
