"""The rows of an operator's inputs."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import STAMPS


def require_columns(rows: DataFrame, operator: Operator, given: Input) -> DataFrame:
    """The rows of an input, which have all columns the operator reads.

    Raises:
        ExecutionError: EXECUTION-005, they have not.
    """
    check_columns(rows.columns, operator, given)
    return rows


def check_columns(names: Collection[str], operator: Operator, given: Input) -> None:
    """Make sure that an input has all columns the operator reads.

    Args:
        names: its columns.
        operator: that reads it.
        given: the input.

    Raises:
        ExecutionError: EXECUTION-005, it has not.
    """
    missing = [name for name in (*given.schema.names, *STAMPS) if name not in names]
    if not missing:
        return
    fix = (
        f"A column its contract has gained comes into the log with the next rows: floodmark land {given.table}"
        if given.upstream is None
        else f"Is '{given.upstream.operator.name}' of another version? See: floodmark plan {given.upstream.operator.name}, floodmark plan {operator.name}"
    )
    where, got = f"input '{given.name}' of {operator.version}", f"a table without {', '.join(missing)}"
    raise ExecutionError(where, f"the columns of '{given.table}'", got, fix, code="EXECUTION-005")
