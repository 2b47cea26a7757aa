"""Results in Arrow as JSON, column by column: each value has the bytes that ``documents.document`` gives it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.deliveries.documents import document
from floodmark.semantics.encoding.dates import has_dates
from floodmark.semantics.encoding.identity import identities, identity

_INSTANT = pa.timestamp("us", tz="UTC")
_NO_FRACTION = ".000000"


def texts_of(column: pa.Array) -> list[str]:
    """The values of a column as JSON texts."""
    encode = _encoder(column.type)
    if not column.null_count:
        return encode(column)
    texts = iter(encode(column.drop_null()))
    return [next(texts) if is_there else "null" for is_there in column.is_valid().to_pylist()]


def objects_of(names: Sequence[str], texts: Sequence[list[str]]) -> list[bytes]:
    """JSON objects, one for each row.

    Args:
        names: of the fields, at least one.
        texts: the values of each field as JSON texts.
    """
    fields = (f"{encode_basestring(name)}:".replace("%", "%%") + "%s" for name in names)
    template = f"{{{','.join(fields)}}}"
    return [text.encode() for text in map(template.__mod__, zip(*texts, strict=True))]


def of_key(column: pa.Array) -> pa.Array:
    """A column of a key: -0.0 and 0.0 name one result, as in ``identity``."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def identities_of(columns: Iterable[pa.Array]) -> list[bytes]:
    """As ``identity``, of keys whose values stand in these columns."""
    return [b"".join(parts) for parts in zip(*map(_identities, columns), strict=True)]


def _identities(column: pa.Array) -> list[bytes]:
    if column.null_count:
        return [identity((value,)) for value in column.to_pylist()]
    if column.type == _INSTANT and has_dates(column):
        return [f"T{len(text)}:{text}".encode() for text in map(str, column.cast(pa.int64()).to_pylist())]
    return identities(column.to_pylist())


def _encoder(kind: pa.DataType) -> Callable[[pa.Array], list[str]]:
    """What makes JSON texts of the values of a type, none of which is null."""
    if pa.types.is_integer(kind):
        return lambda column: [*map(str, column.to_pylist())]
    if pa.types.is_floating(kind):
        return lambda column: [*map(_number, column.to_pylist())]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda column: [*map(encode_basestring, column.to_pylist())]
    if pa.types.is_boolean(kind):
        return lambda column: ["true" if value else "false" for value in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return lambda column: [f'"{value:f}"' for value in column.to_pylist()]
    return _instants if kind == _INSTANT else _one_by_one


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else json.dumps(str(value))


def _instants(column: pa.Array) -> list[str]:
    """Points in time, without a fraction where it is zero."""
    if not has_dates(column):
        return _one_by_one(column)
    texts: list[str] = np.datetime_as_string(column.cast(pa.int64()).to_numpy().astype("datetime64[us]")).tolist()
    return [f'"{text.removesuffix(_NO_FRACTION)}Z"' for text in texts]


def _one_by_one(column: pa.Array) -> list[str]:
    """Values of other types, such as arrays, maps and structs."""
    return [*map(document, column.to_pylist(maps_as_pydicts="strict"))]
