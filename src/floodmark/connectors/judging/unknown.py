"""Fields of rows that a contract does not name and has no rule for, found in samples of the rows so that landing stays fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import pyarrow as pa
from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic_core import from_json

from floodmark.connectors.entries import Form, Record
from floodmark.connectors.judging import columnar
from floodmark.lake.table.left_out import LeftOut
from floodmark.spec.rows.contract import tells_unknown
from floodmark.spec.rows.source import Source

_FIRST, _EVERY = 32, 128
"""Rows of a batch that are sampled: the first ``_FIRST``, then one in ``_EVERY``."""
_BYTES = 1 << 16
"""Most bytes of a batch that are sampled, as some rows are documents of megabytes."""


def columns_left_out(source: Source, batch: pa.RecordBatch) -> LeftOut:
    """The columns of a batch that the contract does not name; empty if the contract has a rule for such columns."""
    if not tells_unknown(source.contract):
        return LeftOut()
    return LeftOut(rows=dict.fromkeys(columnar.unknown(source.contract, batch), len(batch)), looked_at=len(batch))


def fields_left_out(
    source: Source, form: Form, records: Sequence[Record], models: Sequence[Mapping[str, Any]]
) -> LeftOut:
    """The fields that the contract does not name in a sample of good rows; empty if the contract has a rule for such fields.

    Args:
        source: of the rows.
        form: of their values.
        records: rows that keep the contract.
        models: fields of each row as the contract has parsed them.
    """

    def row(index: int) -> tuple[bytes, object, Mapping[str, Any]]:
        record = records[index]
        return record.raw, from_json(record.raw) if form == "json" else record.value, models[index]

    return _sampled(source, len(records), row)


def of_texts_left_out(source: Source, texts: Sequence[bytes]) -> LeftOut:
    """As ``fields_left_out``, of rows of JSON whose contract has plain fields alone, so that no field holds others."""
    return _sampled(source, len(texts), lambda index: (texts[index], from_json(texts[index]), {}))


def _sampled(source: Source, count: int, row: Callable[[int], tuple[bytes, object, Mapping[str, Any]]]) -> LeftOut:
    """The fields that the contract does not name in a sample of rows.

    Args:
        source: of the rows.
        count: of the rows.
        row: (index) -> bytes, value and parsed fields of a row.
    """
    if not tells_unknown(source.contract):
        return LeftOut()
    added = source.connector.adds()
    rows_with, looked_at, size = dict[str, int](), 0, 0
    for index in chain(range(min(_FIRST, count)), range(_FIRST, count, _EVERY)):
        raw, value, parsed = row(index)
        size += len(raw)
        if looked_at and size > _BYTES:
            break
        looked_at += 1
        for name in dict.fromkeys(_unknown(value, source.contract, parsed, "")):
            if name not in added:
                rows_with[name] = rows_with.get(name, 0) + 1
    return LeftOut().plus(LeftOut(rows=rows_with, looked_at=looked_at))


def _unknown(value: object, model: type[BaseModel], parsed: Mapping[str, Any], path: str) -> Iterator[str]:
    """Names, with the path to them, of fields of a value that a model does not name.

    Args:
        value: as it stands in the source.
        model: that has parsed the value.
        parsed: field of the model -> the parsed value.
        path: of the value in its row, with a point behind.
    """
    known = _inputs(model)
    if known is None or not isinstance(value, Mapping):
        return
    yield from (f"{path}{name}" for name in value if name not in known)
    for name, field in known.items():
        inner = parsed.get(field)
        if isinstance(inner, (BaseModel, dict, list, tuple)) and name in value:
            yield from _inside(value[name], inner, f"{path}{name}.")


def _inside(value: object, parsed: object, path: str) -> Iterator[str]:
    """The unknown fields, as of ``_unknown``, of a value that is parsed as a model or holds models."""
    match value, parsed:
        case dict(), BaseModel():
            yield from _unknown(value, type(parsed), parsed.__dict__, path)
        case dict(), dict():
            for name in value.keys() & parsed.keys():
                yield from _inside(value[name], parsed[name], path)
        case list(), list() | tuple():
            for element, inner in zip(value, parsed, strict=False):
                yield from _inside(element, inner, path)


@cache
def _inputs(model: type[BaseModel]) -> Mapping[str, str] | None:
    """Name in the source -> field of a model; None if the model, or one of its validators, has a rule for other names."""
    validators = model.__pydantic_decorators__.model_validators.values()
    if not tells_unknown(model) or any(validator.info.mode != "after" for validator in validators):
        return None
    inputs = dict[str, str]()
    for name, field in model.model_fields.items():
        alias = field.validation_alias or name
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        inputs |= {str(choice.path[0] if isinstance(choice, AliasPath) else choice): name for choice in choices}
        if {"populate_by_name", "validate_by_name"} & model.model_config.keys():
            inputs[name] = name
    return inputs
