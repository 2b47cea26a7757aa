"""Check of whole columns against a contract: the fast way for plain fields in batches whose rows are all good.

The rows of a batch are checked one by one, which also says what is wrong with each, if the contract has validators of its own, a column
is missing under its alias, a type needs converting, or one row is broken.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

import annotated_types
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

from floodmark.core.types import Type, of_python
from floodmark.spec.rows.contract import Contract, EventTime, inputs_of, takes_unknown

_EVENT_TIME = [m for m in typing.get_args(EventTime)[1:] if isinstance(m, AfterValidator)]


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one column.

    Args:
        name: of the field.
        column_name: of the column in the batch: the field's alias, or its name.
        type: of the field.
        nullable: whether the field may be null.
        rules: bounds of the field's values.
        allowed: the only values; empty for any.
    """

    name: str
    column_name: str
    type: Type
    nullable: bool
    rules: tuple[Any, ...]
    allowed: tuple[Any, ...]

    def column(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The field's values; None if rows have to be checked one by one."""
        index = batch.schema.get_field_index(self.column_name)
        if index < 0 or batch.schema.field(index).type not in self.type.readable:
            return None
        column = batch.column(index)
        if column.null_count and not self.nullable:
            return None
        if self.allowed and not pc.all(pc.is_in(column, pa.array([*self.allowed, None], column.type))).as_py():
            return None
        if not all(pc.all(_satisfies(rule, column), min_count=0).as_py() for rule in self.rules):
            return None
        return column.cast(self.type.arrow)


def _satisfies(rule: Any, column: pa.Array) -> pa.Array:
    """(bound, values) -> a boolean per value: whether the value is within the bound; null for null."""
    match rule:
        case annotated_types.Ge():
            return pc.greater_equal(column, rule.ge)
        case annotated_types.Gt():
            return pc.greater(column, rule.gt)
        case annotated_types.Le():
            return pc.less_equal(column, rule.le)
        case _:
            return pc.less(column, rule.lt)


def rows_of(contract: type[Contract], batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The batch as rows of the contract if every row is good; None if the rows have to be checked one by one."""
    checks = checks_of(contract)
    if checks is None or (takes_unknown(contract) and unknown(contract, batch)):
        return None
    columns = []
    for check in checks:
        column = check.column(batch)
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=[check.name for check in checks])


def unknown(contract: type[Contract], batch: pa.RecordBatch) -> list[str]:
    """Columns the contract does not name."""
    known = inputs_of(contract)
    return [name for name in batch.schema.names if name not in known]


@cache
def checks_of(contract: type[Contract]) -> tuple[Check, ...] | None:
    """A check per field of a contract; None if Arrow cannot check one of the fields as pydantic does."""
    decorators = contract.__pydantic_decorators__
    own = (decorators.field_validators, decorators.model_validators, decorators.validators, decorators.root_validators)
    bases = contract.__mro__[: contract.__mro__.index(Contract)]
    if any(own) or any("__init__" in base.__dict__ or "model_post_init" in base.__dict__ for base in bases):
        return None
    checks = []
    for name, field in contract.model_fields.items():
        column = field.validation_alias if isinstance(field.validation_alias, str) else name
        arguments = [a for a in typing.get_args(field.annotation) if a is not type(None)]
        optional = typing.get_origin(field.annotation) in {typing.Union, types.UnionType} and len(arguments) == 1
        kind = arguments[0] if optional else field.annotation
        allowed: tuple[Any, ...] = ()
        if typing.get_origin(kind) is typing.Literal:
            allowed = typing.get_args(kind)
            kind = type(allowed[0])
        bounds = (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt)
        rules = tuple(m for m in field.metadata if isinstance(m, bounds))
        others = [m for m in field.metadata if not isinstance(m, bounds)]
        of_event_time = [m for m in others if isinstance(m, AfterValidator) or type(m).__name__ == "_IsEventTime"]
        plain = len(of_event_time) == len(others) and all(
            m in _EVENT_TIME for m in of_event_time if isinstance(m, AfterValidator)
        )
        numeric = kind in {int, float} or not rules
        sql = of_python(kind)
        if sql is None or not plain or not numeric or any(type(a) is not kind for a in allowed):
            return None
        checks.append(Check(name, column, sql, optional, rules, allowed))
    return tuple(checks)
