"""Rows and panes a function of the user failed for, as rows of the quarantine; and rows through ``flat_map``, which may fail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import UserCodeError, user_code_boundary
from floodmark.semantics.columns import arrow_schema
from floodmark.spec.schema import FAILED, QUARANTINE, RETRACTION, ROW
from floodmark.spec.steps import FlatMap

FAILURE_TYPE = pa.struct(list(arrow_schema(QUARANTINE)))
"""Why a row failed: the columns of ``QUARANTINE``."""

Failure = dict[str, str | None]

_SET_ASIDE = pa.schema([("t", pa.int64()), ("w", pa.int64()), ("s", pa.int64()), ("kind", pa.int32())])
_SET_ASIDE = pa.schema([*_SET_ASIDE, ("side", FAILURE_TYPE)])


def failure(step: str, error: UserCodeError, given: Any, key: Mapping[str, Any] | None = None) -> Failure:
    """What the quarantine says of a row or pane.

    Args:
        step: that failed, for people.
        error: of the user's code.
        given: the row or pane.
        key: columns of the key and their values, where it is known.
    """
    return {
        "step": f"{step}, {error.where}" if step else error.where,
        "key": None if key is None else _text(key),
        "reason": error.got,
        "given": _text(given),
    }


def set_aside(failures: Sequence[tuple[int, int, int, Failure]]) -> pa.Table:
    """(event time, stamp, sequence, failure) as side rows: ``t``, ``w``, ``s``, ``kind``, ``side``."""
    rows = [{"t": t, "w": w, "s": s, "kind": ROW, "side": why} for t, w, s, why in failures]
    return pa.Table.from_pylist(rows, schema=_SET_ASIDE)


@dataclass(frozen=True, slots=True)
class Mapped:
    """What ``flat_map`` made of a table.

    Args:
        rows: the step's columns; a marker, and a row that failed, is one row of nulls.
        origin: the row of the table each came from.
        failures: place in ``rows`` -> why the row it came from failed.
    """

    rows: pa.Table
    origin: pa.Array
    failures: dict[int, Failure]


def flat_mapped(step: FlatMap, table: pa.Table, kinds: Sequence[int]) -> Mapped:
    """Every row through the function of a step; markers, ticks and rows that failed before pass.

    Args:
        step: whose function it is.
        table: columns of the step's parent.
        kinds: ``_kind`` of each row.

    Raises:
        UserCodeError: USER-001, and the step stops then.
    """
    given, quarantines = table.to_pylist(), step.on_error == "quarantine"
    try:
        return _mapped(step, given, kinds, each=False)
    except _Unfit as unfit:
        if not quarantines:
            raise unfit.error from unfit.error.__cause__
    return _mapped(step, given, kinds, each=True)


class _Unfit(Exception):  # noqa: N818 - caught above: some row of the whole does not fit the contract
    def __init__(self, error: UserCodeError) -> None:
        super().__init__()
        self.error = error


def _mapped(step: FlatMap, given: list[dict[str, Any]], kinds: Sequence[int], *, each: bool) -> Mapped:
    schema, fits = arrow_schema(step.schema), f"Yield dictionaries with: {step.schema.describe()}."
    made: list[dict[str, Any]] = []
    origin: list[int] = []
    failures: dict[int, Failure] = {}
    for place, row in enumerate(given):
        new: list[dict[str, Any]] = [{}]
        if kinds[place] <= ROW:
            try:
                with user_code_boundary(step.name, f"The row was {row}."):
                    new = [dict(one) for one in step.function(row)]
                    if each:
                        pa.Table.from_pylist(new, schema=schema)
            except UserCodeError as error:
                if step.on_error == "stop":
                    raise
                if kinds[place] == RETRACTION:
                    continue
                failures[len(made)], new = failure("", error, row), [{}]
        made += new
        origin += [place] * len(new)
    try:
        with user_code_boundary(step.name, fits):
            rows = pa.Table.from_pylist(made, schema=schema)
    except UserCodeError as error:
        raise _Unfit(error) from error
    return Mapped(rows, pa.array(origin, pa.int64()), failures)


def failed_kinds(mapped: Mapped, kinds: pa.Array) -> pa.Array:
    """``_kind`` of the rows of a flat_map, with the failed ones marked."""
    found = kinds.take(mapped.origin).to_pylist()
    for place in mapped.failures:
        found[place] = FAILED
    return pa.array(found, pa.int32())


def split(rows: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Rows of a stage without those that failed on the way to it; and these as side rows, with their ``group``, if any can."""
    if "failure" not in rows.column_names:
        return rows, []
    failed = pc.equal(rows["kind"], FAILED)
    aside = rows.filter(failed).select(["group", "t", "w", "s", "failure"])
    aside = aside.add_column(4, "kind", pa.repeat(pa.scalar(ROW, pa.int32()), aside.num_rows))
    return rows.filter(pc.invert(failed)).drop_columns(["failure"]), [aside.rename_columns({"failure": "side"})]


def _text(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
