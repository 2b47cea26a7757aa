"""Check of an operator's inputs for the columns that the operator reads."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import STAMPS


def require_columns(rows: DataFrame, operator: Operator, input_: Input) -> DataFrame:
    """The rows of an input, if they have all columns that the operator reads.

    Raises:
        ExecutionError: EXECUTION-005, a column is missing.
    """
    check_columns(rows.columns, operator, input_)
    return rows


def check_columns(names: Collection[str], operator: Operator, input_: Input) -> None:
    """Make sure that an input has all columns that the operator reads.

    Args:
        names: columns of the input's table.
        operator: that reads the input.
        input_: of the operator.

    Raises:
        ExecutionError: EXECUTION-005, a column is missing.
    """
    missing = [name for name in (*input_.schema.names, *STAMPS) if name not in names]
    if not missing:
        return
    fix = (
        f"A column its contract has gained comes into the log with the next rows: floodmark land {input_.table}"
        if input_.upstream is None
        else f"Is '{input_.upstream.operator.name}' of another version? See: floodmark plan {input_.upstream.operator.name}, floodmark plan {operator.name}"
    )
    where, got = f"input '{input_.name}' of {operator.version}", f"a table without {', '.join(missing)}"
    raise ExecutionError(where, f"the columns of '{input_.table}'", got, fix, code="EXECUTION-005")
