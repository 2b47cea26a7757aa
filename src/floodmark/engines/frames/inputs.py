"""The rows of an operator's inputs."""

from __future__ import annotations

from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.spec.operator import Input, Operator


def require_columns(rows: DataFrame, operator: Operator, given: Input) -> DataFrame:
    """The rows of an input, which have all columns the operator reads.

    Raises:
        ExecutionError: EXECUTION-005, they have not.
    """
    missing = [name for name in given.schema.names if name not in rows.columns]
    if not missing:
        return rows
    fix = (
        f"A column its contract has gained comes into the log with the next rows: floodmark land {given.table}"
        if given.upstream is None
        else f"Is '{given.upstream.operator}' of another version? See: floodmark plan {given.upstream.operator}, floodmark plan {operator.name}"
    )
    where, got = f"input '{given.name}' of {operator.version}", f"a table without {', '.join(missing)}"
    raise ExecutionError(where, f"the columns of '{given.table}'", got, fix, code="EXECUTION-005")
