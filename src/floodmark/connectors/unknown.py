"""Which fields of rows a contract does not name, where nobody has said what becomes of them: at a cost that no landing feels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic_core import from_json

from floodmark.connectors import columnar
from floodmark.connectors.unit import Record
from floodmark.lake.left_out import LeftOut
from floodmark.spec.contract import tells_unknown
from floodmark.spec.source import DeltaTable, Source

_FIRST, _EVERY = 32, 128
"""Rows of a batch that are looked at: the first ones, then one of so many."""
_BYTES = 1 << 16
"""Of a batch's rows that are looked at, as some rows are documents of megabytes."""
_ADDED = {"_change_type", "_commit_version", "_commit_timestamp"}
"""Columns that a change feed adds."""


def columns_left_out(source: Source, batch: pa.RecordBatch) -> LeftOut:
    """Of the columns of a table."""
    if not tells_unknown(source.contract):
        return LeftOut()
    return LeftOut(rows=dict.fromkeys(columnar.unknown(source.contract, batch), len(batch)), looked_at=len(batch))


def fields_left_out(
    source: Source, form: Literal["json", "python"], records: Sequence[Record], models: Sequence[Mapping[str, Any]]
) -> LeftOut:
    """Of rows that keep the contract, some of which are looked at.

    Args:
        source: of the rows.
        form: of their values.
        records: the rows.
        models: what the contract has made of each.
    """
    if not tells_unknown(source.contract):
        return LeftOut()
    added = _ADDED if isinstance(source.connector, DeltaTable) else set[str]()
    found, looked_at, size = dict[str, int](), 0, 0
    for place in chain(range(min(_FIRST, len(records))), range(_FIRST, len(records), _EVERY)):
        record = records[place]
        size += len(record.raw)
        if looked_at and size > _BYTES:
            break
        looked_at += 1
        value = from_json(record.raw) if form == "json" else record.value
        for name in dict.fromkeys(_unknown(value, source.contract, models[place], "")):
            if name not in added:
                found[name] = found.get(name, 0) + 1
    return LeftOut().plus(LeftOut(rows=found, looked_at=looked_at))


def _unknown(value: object, model: type[BaseModel], made: Mapping[str, Any], path: str) -> Iterator[str]:
    """Names, with the path to them, of fields of a value that a model does not take.

    Args:
        value: as it stands in the source.
        model: that takes it.
        made: field -> what the model has made of it.
        path: of the value in its row, with a point behind.
    """
    known = _inputs(model)
    if known is None or not isinstance(value, Mapping):
        return
    yield from (f"{path}{name}" for name in value if name not in known)
    for name, field in known.items():
        inner = made.get(field)
        if isinstance(inner, (BaseModel, dict, list, tuple)) and name in value:
            yield from _inside(value[name], inner, f"{path}{name}.")


def _inside(value: object, made: object, path: str) -> Iterator[str]:
    """The same of a value that may hold models."""
    match value, made:
        case dict(), BaseModel():
            yield from _unknown(value, type(made), made.__dict__, path)
        case dict(), dict():
            for name in value.keys() & made.keys():
                yield from _inside(value[name], made[name], path)
        case list(), list() | tuple():
            for one, inner in zip(value, made, strict=False):
                yield from _inside(one, inner, path)


@cache
def _inputs(model: type[BaseModel]) -> Mapping[str, str] | None:
    """Name in the source -> field of a model; None where the model, or a validator of it, says itself what becomes of other names."""
    validators = model.__pydantic_decorators__.model_validators.values()
    if not tells_unknown(model) or any(validator.info.mode != "after" for validator in validators):
        return None
    found = dict[str, str]()
    for name, field in model.model_fields.items():
        alias = field.validation_alias or name
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        found |= {str(one.path[0] if isinstance(one, AliasPath) else one): name for one in choices}
        if {"populate_by_name", "validate_by_name"} & model.model_config.keys():
            found[name] = name
    return found
