"""Check of an operator's inputs for the columns that the operator reads, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.engines.frames.expressions import with_columns
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.schema import STAMPS


def require_columns(rows: DataFrame, operator: Operator, input_: Input) -> DataFrame:
    """The rows of an input, if they have all columns that the operator reads, in the types of its contract.

    An optional column that the contract of a log has gained is null until the first rows with it land.

    Raises:
        ExecutionError: EXECUTION-005, a column is missing or of another type.
    """
    types = dict(rows.dtypes)
    check_columns(types, operator, input_)
    absent = {c.name: f"CAST(NULL AS {c.type})" for c in input_.schema.columns if c.name not in types}
    return with_columns(rows, absent)


def check_columns(types: Mapping[str, str], operator: Operator, input_: Input) -> None:
    """Make sure that an input has all columns that the operator reads, in the types of its contract. A log may lack optional columns.

    Args:
        types: column of the input's table -> Spark SQL's name of its type.
        operator: that reads the input.
        input_: of the operator.

    Raises:
        ExecutionError: EXECUTION-005, a column is missing or of another type.
    """
    optional = set() if input_.upstream is not None else {c.name for c in input_.schema.columns if c.nullable}
    missing = [name for name in (*input_.schema.names, *STAMPS) if name not in types and name not in optional]
    retyped = [
        name for name, kind in input_.schema.types.items() if name in types and _plain(types[name]) != _plain(kind)
    ]
    if not missing and not retyped:
        return
    if input_.upstream is not None or missing:
        fix = advice(missing, input_.upstream.operator.name if input_.upstream is not None else "")
    else:
        fix = f"A log keeps the types that it was landed with. Give {', '.join(retyped)} the type back, and cast in the operator: with_columns(...)."
    where = f"input '{input_.name}' of {operator.version}"
    got = f"a table without {', '.join(missing)}"
    if not missing:
        got = ", ".join(f"{name} {types[name]} for {input_.schema.types[name]}" for name in retyped)
    raise ExecutionError(where, f"the columns of '{input_.table}'", got, fix, code="EXECUTION-005")


def advice(missing: Sequence[str], writer: str) -> str:
    """What to do about a table without some columns.

    Args:
        missing: the columns.
        writer: name of the operator that writes the table; empty for the log of a source.
    """
    if writer:
        return f"Another version of '{writer}' has written it. See: floodmark plan {writer}"
    return f"A new field may come into a log if it is optional: {', '.join(missing)}: ... | None = None. Or give the source a new name: all its input then lands again."


def _plain(kind: str) -> str:
    """The name of a type without what names of one type may differ in."""
    return kind.replace("`", "").replace(" ", "").lower()
