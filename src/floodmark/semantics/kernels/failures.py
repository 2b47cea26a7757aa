"""Failures of the user's code as rows of the quarantine; and ``flat_map``, whose rows may fail."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import UserCodeError, printable, user_code_boundary
from floodmark.semantics.encoding.columns import arrow_schema, table_fitted
from floodmark.spec.graph.steps import FlatMap
from floodmark.spec.values.schema import FAILED, QUARANTINE, RETRACTION, ROW

FAILURE_TYPE = pa.struct(list(arrow_schema(QUARANTINE)))
"""The reason why a row failed: the columns of ``QUARANTINE``."""

Failure = dict[str, str | None]

_SET_ASIDE = pa.schema([("t", pa.int64()), ("w", pa.int64()), ("s", pa.int64()), ("kind", pa.int32())])
_SET_ASIDE = pa.schema([*_SET_ASIDE, ("side", FAILURE_TYPE)])


def failure(step: str, error: UserCodeError, input_: Any, key: Mapping[str, Any] | None = None) -> Failure:
    """The quarantine's columns for a row or pane that failed.

    Args:
        step: that failed, for people.
        error: of the user's code.
        given: the row or pane.
        key: columns of the key and their values; None before rows have a key.
    """
    return {
        "step": f"{step}, {error.where}" if step else error.where,
        "key": None if key is None else _text(key),
        "reason": error.got,
        "given": _text(input_),
    }


def expression_failure(step: str, reason: str, row: Any, key: Mapping[str, Any] | None = None) -> Failure:
    """As ``failure``, for an expression.

    Args:
        step: that computes it, for people.
        reason: the expression and its message.
        given: the row.
        key: columns of the key and their values; None before rows have a key.
    """
    return {"step": step, "key": None if key is None else _text(key), "reason": reason, "given": _text(row)}


def unmet(name: str, description: str, row: Any) -> Failure:
    """As ``failure``, for a row that does not meet an expectation.

    Args:
        name: of the expectation.
        description: the expectation in words.
        row: that does not meet it.
    """
    return expression_failure(*unmet_texts(name, description), row)


def unmet_texts(name: str, description: str) -> tuple[str, str]:
    """(name, the expectation in words) -> step and reason in the quarantine."""
    return f"expectation '{name}'", f"the row does not meet {description}"


def set_aside(failures: Sequence[tuple[int, int, int, Failure]]) -> pa.Table:
    """(event time, stamp, sequence, failure) as side rows: ``t``, ``w``, ``s``, ``kind``, ``side``."""
    rows = [{"t": t, "w": w, "s": s, "kind": ROW, "side": why} for t, w, s, why in failures]
    return pa.Table.from_pylist(rows, schema=_SET_ASIDE)


@dataclass(frozen=True, slots=True)
class Mapped:
    """The result of ``flat_map`` over a table.

    Args:
        rows: the step's columns; a marker, and a row that failed, is one row of nulls.
        origin: for each of ``rows`` the position of its row in the table.
        failures: position in ``rows`` -> failure of the row it came from.
    """

    rows: pa.Table
    origin: pa.Array
    failures: dict[int, Failure]


def flat_mapped(step: FlatMap, table: pa.Table, kinds: Sequence[int]) -> Mapped:
    """Apply the step's function to every row; markers, ticks and rows that failed before become one row of nulls each.

    Args:
        step: whose function it is.
        table: columns of the step's parent.
        kinds: ``_kind`` of each row.

    Raises:
        UserCodeError: USER-001, if the step's ``on_error`` is "stop".
    """
    rows, made, errors = table.to_pylist(), [], dict[int, UserCodeError]()
    keeps = step.on_error == "quarantine"
    copied = (
        (lambda row: row) if not keeps else copy.deepcopy if any(map(pa.types.is_nested, table.schema.types)) else dict
    )
    for position, row in enumerate(rows):
        new: list[dict[str, Any]] | None = None  # a row of nulls
        if kinds[position] <= ROW:
            try:
                with user_code_boundary(step.name, f"The row was {row}."):
                    new = [dict(mapping) for mapping in step.function(copied(row))]
            except UserCodeError as error:
                if not keeps:
                    raise
                errors[position] = error
        made.append(new)
    try:
        _check(step, [mapping for new in made if new for mapping in new])
    except UserCodeError:
        if not keeps:
            raise
        for position, new in enumerate(made):
            try:
                _check(step, new or [])
            except UserCodeError as error:
                errors[position], made[position] = error, None
    return _mapped(step, rows, kinds, made, errors)


def _check(step: FlatMap, rows: list[dict[str, Any]]) -> None:
    with user_code_boundary(step.name, f"Yield dictionaries with: {step.schema.describe()}."):
        table_fitted(rows, step.schema)


def _mapped(
    step: FlatMap,
    inputs: list[dict[str, Any]],
    kinds: Sequence[int],
    made: list[list[dict[str, Any]] | None],
    errors: Mapping[int, UserCodeError],
) -> Mapped:
    """The results of all rows as one table."""
    rows: list[dict[str, Any]] = []
    origin: list[int] = []
    failures: dict[int, Failure] = {}
    for position, new in enumerate(made):
        if position in errors:
            if kinds[position] == RETRACTION:  # the row it retracts was quarantined, too
                continue
            failures[len(rows)] = failure("", errors[position], inputs[position])
        rows += [{}] if new is None else new
        origin += [position] * (1 if new is None else len(new))
    return Mapped(pa.Table.from_pylist(rows, schema=arrow_schema(step.schema)), pa.array(origin, pa.int64()), failures)


def failed_kinds(mapped: Mapped, kinds: pa.Array) -> pa.Array:
    """``_kind`` of the rows of a flat_map, ``FAILED`` for rows that failed."""
    marked = kinds.take(mapped.origin).cast(pa.int32())
    if not mapped.failures:
        return marked
    fails = np.zeros(len(marked), bool)
    fails[list(mapped.failures)] = True
    return pc.if_else(pa.array(fails), pa.scalar(FAILED, pa.int32()), marked)


def split(rows: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """(rows of a stage) -> the rows that have not failed; and one table of the failed rows as side rows with ``group``, none if rows cannot fail."""
    if "failure" not in rows.column_names:
        return rows, []
    failed = pc.equal(rows["kind"], FAILED)
    aside = rows.filter(failed).select(["group", "t", "w", "s", "failure"])
    aside = aside.add_column(4, "kind", pa.repeat(pa.scalar(ROW, pa.int32()), aside.num_rows))
    side = aside["failure"].combine_chunks()
    columns = [pc.struct_field(side, name) for name in QUARANTINE.names]
    columns = [plain_texts(c) if n in {"key", "given"} else c for n, c in zip(QUARANTINE.names, columns, strict=True)]
    aside = aside.set_column(
        aside.column_names.index("failure"), "side", pa.StructArray.from_arrays(columns, fields=list(FAILURE_TYPE))
    )
    return rows.filter(pc.invert(failed)).drop_columns(["failure"]), [aside]


def plain_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """JSON of rows and keys, as an engine wrote it, in the form in which ``failure`` writes it."""
    json_texts = texts.to_pylist()
    return pa.array([None if text is None else _text(json.loads(text)) for text in json_texts], pa.string())


def _text(value: Any) -> str:
    """A row or pane as JSON; values that JSON does not have, as text."""
    try:
        return printable(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError):  # what the user's code has put into it
        return printable(json.dumps(repr(value), ensure_ascii=False))


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case Mapping():
            return {name if isinstance(name, str) else repr(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | set():
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
