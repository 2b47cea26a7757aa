"""Validation: records against a contract, row by row, into Arrow batches of good rows and reasons for the broken ones."""

from __future__ import annotations

import enum
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ValidationError

from floodmark.connectors import columnar
from floodmark.connectors.unit import Columns, Record
from floodmark.connectors.unknown import columns_left_out, fields_left_out
from floodmark.core.errors import shown
from floodmark.core.time import describe, describe_span
from floodmark.lake.left_out import LeftOut
from floodmark.semantics.columns import arrow_type
from floodmark.semantics.stretches import Stretch, stretches
from floodmark.semantics.watermarks import Trace, candidates, candidates_from_column
from floodmark.spec.annotations import rescued_text
from floodmark.spec.contract import Contract, allowed_values, event_time_field, inputs_of, rescued_field, schema
from floodmark.spec.schema import Schema
from floodmark.spec.source import FromColumn, Source

_BATCH_ROWS, _BATCH_BYTES = 16_384, 4 << 20
EVENT, ASKED, CHANGE = "_event", "_asked", "_change"
"""Extra columns of a batch: event time and candidate watermark, ms; of a change feed also what became of the row."""
CHANGE_TYPE = "_change_type"
"""Where a change feed says what became of a row."""
CHANGES = {"insert": 0, "delete": 1, "update_preimage": 2, "update_postimage": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A row that does not keep its contract, and why, for people."""

    position: int
    raw: str
    reason: str
    replayable: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a unit, in order.

    Args:
        rows: the good ones as Arrow, with EVENT and ASKED.
        broken: the others.
        times: stretches in which the event times of the good ones lie.
        left_out: fields of them that the contract does not name.
    """

    rows: pa.RecordBatch
    broken: tuple[Broken, ...]
    times: tuple[Stretch, ...]
    left_out: LeftOut


@dataclass(slots=True)
class Refusals:
    """Rows of a unit that keep the contract and are broken all the same.

    Args:
        reasons: place among the rows that keep the contract -> why, for people.
        seen: rows that keep the contract so far.
    """

    reasons: Mapping[int, str]
    seen: int = 0

    def of(self, count: int) -> list[str | None]:
        """The reasons of the next so many rows; None for a good one."""
        first, self.seen = self.seen, self.seen + count
        return [self.reasons.get(place) for place in range(first, self.seen)]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a row of a source has to keep at one moment of landing.

    Args:
        source: contract, strategy, limits.
        now: the landing clock, ms.
        refused: unit -> place among its rows that keep the contract -> why that row is broken all the same.
    """

    source: Source
    now: int
    refused: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    def refusals(self, unit: int) -> Refusals:
        """The refused rows of a unit, from its first row on."""
        return Refusals(self.refused.get(unit, {}))

    def batches(
        self, records: Iterable[Record | Columns], form: Literal["json", "python"], refusals: Refusals | None = None
    ) -> Iterator[Batch]:
        """Check records in order, a few thousand at a time.

        Args:
            records: of one unit.
            form: of their values.
            refusals: of the unit; it goes on counting where other records of the unit come behind these.
        """
        return _Checker(self, form, refusals or Refusals({})).run(records)


@dataclass(slots=True)
class _Checker:
    rules: Rules
    form: Literal["json", "python"]
    refusals: Refusals
    models: list[dict[str, Any]] = field(default_factory=list)
    kept: list[Record] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    contract: type[Contract] = field(init=False)
    schema: Schema = field(init=False)
    rescued: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.contract, self.schema = self.rules.source.contract, self.rules.source.schema
        self.rescued = rescued_field(self.contract)

    def run(self, found: Iterable[Record | Columns]) -> Iterator[Batch]:
        """Whole columns where every row of them is good, rows one by one elsewhere."""
        found = iter(found)
        for some in found:
            if isinstance(some, Columns):
                whole = None if self.refusals.reasons else self._whole(some)
                if whole is not None:
                    if self.kept or self.broken:
                        yield self._flush()
                    yield whole
                else:
                    yield from self._one_by_one(some.records())
            else:
                yield from self._one_by_one(chain([some], typing.cast("Iterable[Record]", found)))
        if self.kept or self.broken:
            yield self._flush()

    def _whole(self, some: Columns) -> Batch | None:
        rows, source = columnar.rows_of(self.contract, some.batch), self.rules.source
        if rows is None:
            return None
        name = event_time_field(self.contract)
        if self.contract.floodmark_ingestion_time or name is None:
            rows = _with_times(rows, np.full(len(rows), self.rules.now, dtype=np.int64), source)
            return Batch(rows, (), (), columns_left_out(source, some.batch))
        moments, valid, ahead = self._moments(rows.column(name))
        if not valid.all() or ahead.any():
            return None
        times = stretches(moments, lambda place: some.position + place)
        return Batch(_with_times(rows, moments, source), (), times, columns_left_out(source, some.batch))

    def _moments(self, column: pa.Array) -> tuple[Any, Any, Any]:
        """Event times in ms, and which of them are there, and which too far in the future."""
        limit = self.rules.source.future_limit
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        moments = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
        return (
            moments,
            valid,
            moments > self.rules.now + limit if limit is not None else np.zeros(len(moments), dtype=bool),
        )

    def _one_by_one(self, records: Iterable[Record]) -> Iterator[Batch]:
        validator = self.contract.__pydantic_validator__
        check = validator.validate_json if self.form == "json" else validator.validate_python
        models, kept, size = self.models, self.kept, 0
        for record in records:
            size += len(record.raw)
            if record.reason:
                self._break(record, record.reason)
            else:
                try:
                    model = check(record.value)  # type: ignore[arg-type]  # bytes for JSON, else a dict
                    models.append(self._fields(model))
                    kept.append(record)
                except ValidationError as error:
                    self._break(record, explain(error))
                except Exception as error:  # noqa: BLE001 - a validator of the user's; the row waits until it is mended
                    self._break(record, f"the contract's validator failed: {type(error).__name__}: {error}")
            if len(kept) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield self._flush()
                size = 0

    def _fields(self, model: Any) -> dict[str, Any]:
        if self.rescued is None:
            return model.__dict__  # type: ignore[no-any-return]
        return {**model.__dict__, self.rescued: rescued_text(model.__pydantic_extra__)}

    def _break(self, record: Record, reason: str) -> None:
        if not record.raw and record.value is not None:
            record = record._replace(raw=json.dumps(record.value, default=str).encode())
        raw, exact = readable(record.raw)
        self.broken.append(Broken(position=record.position, raw=raw, reason=reason, replayable=exact))

    def _flush(self) -> Batch:
        left_out = fields_left_out(self.rules.source, self.form, self.kept, self.models)
        while True:  # again when a column took rows out, as those before it still hold them
            columns = [self._column(name, kind) for name, kind in self.schema.types.items()]
            if all(len(column) == len(self.kept) for column in columns):
                break
        rows = pa.RecordBatch.from_arrays(columns, names=list(self.schema.names))
        if self.rules.source.revisable:
            rows = rows.append_column(CHANGE, self._changes())
        rows, places = self._not_refused(*self._within_time(rows))
        batch = Batch(rows, tuple(self.broken), self._times(rows, places), left_out)
        self.models.clear()
        self.kept.clear()
        self.broken.clear()
        return batch

    def _column(self, name: str, kind: str) -> pa.Array:
        """A column as Arrow; rows whose value does not fit the type are taken out of the batch and reported."""
        values = [model[name] for model in self.models]
        if "<" in kind or any(isinstance(value, enum.Enum) for value in values):
            values = [_plain(value) for value in values]
        try:
            return pa.array(values, type=arrow_type(kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return self._column_of_fitting(name, kind, values)

    def _column_of_fitting(self, name: str, kind: str, values: list[Any]) -> pa.Array:
        wanted, fitting = arrow_type(kind), []
        for row, value in enumerate(values):
            try:
                pa.array([value], type=wanted)
                fitting.append(row)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                self._break(
                    self.kept[row], f"{name}: expected a {kind}, got {shown(value)}, which does not fit into one"
                )
        self.models[:] = [self.models[row] for row in fitting]
        self.kept[:] = [self.kept[row] for row in fitting]
        return pa.array([values[row] for row in fitting], type=wanted)

    def _times(self, rows: pa.RecordBatch, places: Any) -> tuple[Stretch, ...]:
        """Stretches of the rows' event times; none where that is the moment of landing."""
        if self.contract.floodmark_ingestion_time:
            return ()
        return stretches(rows.column(EVENT).to_numpy(), lambda place: self.kept[places[place]].position)

    def _not_refused(self, rows: pa.RecordBatch, places: Any) -> tuple[pa.RecordBatch, Any]:
        """Take out the rows that are refused; ``places`` are those of the rows among the records kept."""
        if not self.refusals.reasons:
            return rows, places
        reasons = self.refusals.of(len(rows))
        for place, reason in zip(places, reasons, strict=True):
            if reason is not None:
                self._break(self.kept[place], reason)
        good = np.array([reason is None for reason in reasons], dtype=bool)
        return rows.filter(pa.array(good)), np.asarray(places)[good]

    def _within_time(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Add EVENT and ASKED; take out rows without an event time or too far in the future. The places of the others come with them."""
        source, now = self.rules.source, self.rules.now
        name = event_time_field(self.contract)
        if self.contract.floodmark_ingestion_time or name is None:
            moments = np.full(len(rows), now, dtype=np.int64)
            return _with_times(rows, moments, source), range(len(rows))
        moments, valid, ahead = self._moments(rows.column(name))
        for row in np.flatnonzero(~valid | ahead):
            reason = f"{name}: expected an event time, got null"
            if valid[row]:
                limit = describe_span(source.future_limit or 0)
                reason = (
                    f"{name}: expected at most {limit} after the moment of landing ({describe(now)}), "
                    f"got {describe(int(moments[row]))}; it would make every row after it late"
                )
            self._break(self.kept[row], reason)
        good = valid & ~ahead
        return _with_times(rows.filter(pa.array(good)), moments[good], source), np.flatnonzero(good)

    def _changes(self) -> pa.Array:
        """What became of the rows that are kept, by ``CHANGES``."""
        values = (
            json.loads(r.raw) if self.form == "json" else typing.cast("dict[str, Any]", r.value) for r in self.kept
        )
        return pa.array([CHANGES[value.get(CHANGE_TYPE, "insert")] for value in values], type=pa.int32())


def _with_times(rows: pa.RecordBatch, moments: Any, source: Source) -> pa.RecordBatch:
    strategy = source.watermark
    if isinstance(strategy, FromColumn):
        column = rows.column(strategy.column)
        number = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        stated = number // 1000 if pa.types.is_timestamp(column.type) else number
        asked = candidates_from_column(stated, column.is_valid().to_numpy(zero_copy_only=False))
    else:
        asked = candidates(moments, bound=strategy.bound)
    return rows.append_column(EVENT, pa.array(moments)).append_column(ASKED, pa.array(asked))


def trace_of(rows: pa.RecordBatch, partition_by: str | None) -> Trace:
    """The rows as watermarks see them."""
    asked = rows.column(ASKED).to_numpy(zero_copy_only=False)
    return Trace(asked, None if partition_by is None else partition_keys(rows.column(partition_by)))


def partition_keys(column: pa.Array) -> list[str]:
    """A text per row that tells source partitions apart: ``null``, or ``=`` and the value."""
    texts = pc.binary_join_element_wise("=", column.cast(pa.string()), "", null_handling="emit_null")
    return pc.fill_null(texts, "null").to_pylist()  # type: ignore[no-any-return]


def fractions_of(contract: type[Contract]) -> frozenset[str]:
    """Inputs that are numbers with a fraction."""
    inputs, kinds = inputs_of(contract), schema(contract).types
    fields = {id(model_field): name for name, model_field in contract.model_fields.items()}
    return frozenset(
        name for name, model_field in inputs.items() if kinds[fields[id(model_field)]].startswith(("double", "decimal"))
    )


def texts_of_literals(contract: type[Contract]) -> dict[str, dict[str, object]]:
    """For formats that hold only text: input to {text: value} where the allowed values are numbers or booleans."""
    found = {}
    for name, model_field in inputs_of(contract).items():
        values = [value for value in allowed_values(model_field.annotation) if not isinstance(value, str)]
        if values:
            found[name] = {str(value).lower() if isinstance(value, bool) else str(value): value for value in values}
    return found


def _plain(value: object) -> object:
    """A value as Arrow takes it: of a model its fields, of a dictionary its pairs, of a member of an enum its value."""
    match value:
        case enum.Enum():
            return str(value.value)
        case BaseModel():
            return {name: _plain(inner) for name, inner in value.__dict__.items()}
        case Mapping():
            return [(_plain(key), _plain(inner)) for key, inner in value.items()]
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value


def explain(error: ValidationError) -> str:
    """What is wrong with a row, for people: field, expected, got."""
    return "; ".join(_explain(detail) for detail in error.errors(include_url=False, include_context=False))


def _explain(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    prefix, message = f"{where}: " if where else "", detail["msg"]
    if detail["type"] == "missing":
        return f"{prefix}expected a value, got nothing"
    if detail["type"] == "json_invalid":
        return f"expected one JSON object, got {shown(detail['input'])} ({message.removeprefix('Invalid JSON: ')})"
    if detail["type"] == "extra_forbidden":
        return f"{prefix}expected no field of this name, as the contract forbids unknown ones, got {shown(detail['input'])}"
    if message.startswith("Input should be "):
        wanted = message.removeprefix("Input should be ").split(", unable to")[0]
        return f"{prefix}expected {wanted}, got {shown(detail['input'])}"
    return f"{prefix}{message.removeprefix('Value error, ')}, got {shown(detail['input'])}"


def readable(raw: bytes) -> tuple[str, bool]:
    """Bytes as text, and whether that is exact; what is not UTF-8 is written in hex behind a backslash."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="backslashreplace"), False
