"""Validation of records against a contract: Arrow batches of the good rows, and a reason for each broken row."""

from __future__ import annotations

import enum
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ValidationError

from floodmark.connectors.entries import TOGETHER_BYTES, TOGETHER_ROWS, Columns, Entry, Form, JsonTexts, Record
from floodmark.connectors.judging import columnar, json_columns
from floodmark.connectors.judging.strictness import check_of
from floodmark.connectors.judging.unknown import columns_left_out, fields_left_out, of_texts_left_out
from floodmark.core.errors import shown
from floodmark.core.time import describe, describe_span
from floodmark.lake.table.left_out import LeftOut
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.time.stretches import Stretch, stretches
from floodmark.semantics.time.watermarks import Trace, candidates, candidates_from_column
from floodmark.spec.rows.contract import Contract, allowed_values, event_time_field, inputs_of, rescued_field, schema
from floodmark.spec.rows.source import FromColumn, Source
from floodmark.spec.values.annotations import rescued_text
from floodmark.spec.values.schema import Schema

_PIECE_ROWS = 1_024
"""Rows that are checked one by one where one of them is broken."""
EVENT, ASKED, CHANGE = "_event", "_asked", "_change"
"""Columns added to a batch: event time and candidate watermark, ms; of a change feed also what became of the row, by ``CHANGES``."""
_PARTITION = b"floodmark.source_partition"
"""Key in the metadata of a batch all of whose rows are of one source partition."""
CHANGE_TYPE = "_change_type"
"""The column in which a change feed says what became of a row: one of ``CHANGES``."""
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
    """Rows of a unit that keep the contract and are refused for another reason.

    Args:
        reasons: index among the rows that keep the contract -> why the row is refused, for people.
        seen: rows that keep the contract so far.
    """

    reasons: Mapping[int, str]
    seen: int = 0

    def of(self, count: int) -> list[str | None]:
        """The reasons of the next ``count`` rows; None for a good row."""
        first, self.seen = self.seen, self.seen + count
        return [self.reasons.get(index) for index in range(first, self.seen)]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that a row of a source has to keep at one moment of landing.

    Args:
        source: contract, strategy, limits.
        now: the landing clock, ms.
        refused: unit -> index among its rows that keep the contract -> why that row is refused.
    """

    source: Source
    now: int
    refused: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    def refusals(self, unit: int) -> Refusals:
        """The refused rows of a unit, from its first row on."""
        return Refusals(self.refused.get(unit, {}))

    def batches(self, records: Iterable[Entry], form: Form, refusals: Refusals | None = None) -> Iterator[Batch]:
        """Check records in order, a few thousand at a time.

        Args:
            records: of one unit.
            form: of their values.
            refusals: of the unit; the same object for all calls with records of the unit, as it counts rows over them.
        """
        return _Checker(self, form, refusals or Refusals({})).run(records)


@dataclass(slots=True)
class _Checker:
    """The check of one unit's records; between two batches ``accepted``, ``models`` and ``broken`` hold the rows of the next batch, whichever entries those rows are of.

    Args:
        rules: to keep.
        form: of the records' values.
        refusals: of the unit.
        models: fields of each accepted record as the contract has parsed them.
        accepted: records that keep the contract.
        broken: records that do not.
        size: bytes of the accepted and the broken records.
    """

    rules: Rules
    form: Form
    refusals: Refusals
    models: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[Record] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    size: int = 0
    contract: type[Contract] = field(init=False)
    schema: Schema = field(init=False)
    rescued: str | None = field(init=False)
    hidden: frozenset[str] = field(init=False)
    """Fields that the connector adds and the contract does not name, which are no unknown fields of the row."""

    def __post_init__(self) -> None:
        self.contract, self.schema = self.rules.source.contract, self.rules.source.schema
        self.rescued = rescued_field(self.contract)
        self.hidden = self.rules.source.connector.adds() - inputs_of(self.contract).keys()

    def run(self, records: Iterable[Entry]) -> Iterator[Batch]:
        """The batches of the records: rows that stand together are checked at once if each of them is good, other rows one by one."""
        for kind, entries in groupby(records, type):
            if kind is Record:
                yield from self._one_by_one(typing.cast("Iterable[Record]", entries))
            else:
                for entry in typing.cast("Iterable[Columns | JsonTexts]", entries):
                    yield from self._together(entry)
        if self.accepted or self.broken:
            yield self._flush()

    def _together(self, entry: Columns | JsonTexts) -> Iterator[Batch]:
        """The batches of rows that stand together: one if each of them is good."""
        whole = None if self.refusals.reasons else self._whole(entry)
        if whole is not None:
            if self.accepted or self.broken:
                yield self._flush()
            yield whole
        elif isinstance(entry, JsonTexts) and len(entry.texts) > _PIECE_ROWS and not self.refusals.reasons:
            for piece in entry.pieces(_PIECE_ROWS):
                yield from self._together(piece)
        else:
            yield from self._one_by_one(entry.records())

    def _whole(self, entry: Columns | JsonTexts) -> Batch | None:
        """Rows as one batch if each of them is good; None if they have to be checked one by one."""
        source = self.rules.source
        if isinstance(entry, Columns):
            rows = columnar.rows_of(self.contract, entry.batch)
        else:
            rows = None if source.revisable else json_columns.rows_of(self.contract, entry.texts, entry.added)
        if rows is None:
            return None
        times, name = tuple[Stretch, ...](), event_time_field(self.contract)
        if self.contract.floodmark_ingestion_time or name is None:
            moments = np.full(len(rows), self.rules.now, dtype=np.int64)
        else:
            moments, valid, ahead = self._moments(rows.column(name))
            if not valid.all() or ahead.any():
                return None
            times = stretches(moments, entry.position_of)
        if isinstance(entry, Columns):
            left_out = columns_left_out(source, entry.batch)
        else:
            left_out = of_texts_left_out(source, entry.texts)
        return Batch(_with_times(rows, moments, source), (), times, left_out)

    def _moments(self, column: pa.Array) -> tuple[Any, Any, Any]:
        """Event times in ms; a boolean per row whether the time is not null; a boolean per row whether it is too far in the future."""
        limit = self.rules.source.future_limit
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        moments = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
        return (
            moments,
            valid,
            moments > self.rules.now + limit if limit is not None else np.zeros(len(moments), dtype=bool),
        )

    def _one_by_one(self, records: Iterable[Record]) -> Iterator[Batch]:
        check, hides = check_of(self.contract, self.form), bool(self.hidden) and self.form != "json"
        models, accepted, broken = self.models, self.accepted, self.broken
        for record in records:
            self.size += len(record.raw)
            if record.reason:
                self._break(record, record.reason)
            else:
                try:
                    model = check(self._shown(record.value) if hides else record.value)
                    models.append(self._fields(model))
                    accepted.append(record)
                except ValidationError as error:
                    self._break(record, explain(error))
                except Exception as error:  # noqa: BLE001 - a validator of the user's; the row waits until it is mended
                    self._break(record, f"the contract's validator failed: {type(error).__name__}: {error}")
            if len(accepted) + len(broken) >= TOGETHER_ROWS or self.size >= TOGETHER_BYTES:
                yield self._flush()

    def _shown(self, value: object) -> object:
        """A value without what the connector has added and the contract does not name."""
        if isinstance(value, dict) and not self.hidden.isdisjoint(value):
            return {name: content for name, content in value.items() if name not in self.hidden}
        return value

    def _fields(self, model: Any) -> dict[str, Any]:
        if self.rescued is None:
            return model.__dict__  # type: ignore[no-any-return]
        return {**model.__dict__, self.rescued: rescued_text(model.__pydantic_extra__)}

    def _break(self, record: Record, reason: str) -> None:
        if record.stored is not None:
            record = record._replace(raw=record.stored())
        elif not record.raw and record.value is not None:
            record = record._replace(raw=_text_of(record.value))
        raw, exact = readable(record.raw)
        self.broken.append(Broken(position=record.position, raw=raw, reason=reason, replayable=exact))

    def _flush(self) -> Batch:
        left_out = fields_left_out(self.rules.source, self.form, self.accepted, self.models)
        while True:  # again when a column took rows out, as the columns before it still hold those rows
            columns = [self._column(name, kind) for name, kind in self.schema.types.items()]
            if all(len(column) == len(self.accepted) for column in columns):
                break
        rows = pa.RecordBatch.from_arrays(columns, names=list(self.schema.names))
        if self.rules.source.revisable:
            rows = rows.append_column(CHANGE, self._changes())
        rows, indices = self._not_refused(*self._within_time(rows))
        batch = Batch(rows, tuple(self.broken), self._times(rows, indices), left_out)
        self.models.clear()
        self.accepted.clear()
        self.broken.clear()
        self.size = 0
        return batch

    def _column(self, name: str, kind: str) -> pa.Array:
        """A column as Arrow; rows whose value does not fit the type are left out of the batch and reported as broken."""
        values = [model[name] for model in self.models]
        if "<" in kind or any(issubclass(one, enum.Enum) for one in set(map(type, values))):
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
                    self.accepted[row], f"{name}: expected a {kind}, got {shown(value)}, which does not fit into one"
                )
        self.models[:] = [self.models[row] for row in fitting]
        self.accepted[:] = [self.accepted[row] for row in fitting]
        return pa.array([values[row] for row in fitting], type=wanted)

    def _times(self, rows: pa.RecordBatch, indices: Any) -> tuple[Stretch, ...]:
        """Stretches of the rows' event times; none if the event time is the moment of landing."""
        if self.contract.floodmark_ingestion_time:
            return ()
        return stretches(rows.column(EVENT).to_numpy(), lambda index: self.accepted[indices[index]].position)

    def _not_refused(self, rows: pa.RecordBatch, indices: Any) -> tuple[pa.RecordBatch, Any]:
        """(rows, index of each among the accepted records) -> the same without the refused rows, which are reported as broken."""
        if not self.refusals.reasons:
            return rows, indices
        reasons = self.refusals.of(len(rows))
        for index, reason in zip(indices, reasons, strict=True):
            if reason is not None:
                self._break(self.accepted[index], reason)
        good = np.array([reason is None for reason in reasons], dtype=bool)
        return rows.filter(pa.array(good)), np.asarray(indices)[good]

    def _within_time(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """The rows with EVENT and ASKED, and the index of each among the accepted records.

        Rows without an event time, or with one too far in the future, are left out and reported as broken.
        """
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
            self._break(self.accepted[row], reason)
        good = valid & ~ahead
        return _with_times(rows.filter(pa.array(good)), moments[good], source), np.flatnonzero(good)

    def _changes(self) -> pa.Array:
        """What became of each accepted row, by ``CHANGES``."""
        values = (
            json.loads(r.raw) if self.form == "json" else typing.cast("dict[str, Any]", r.value) for r in self.accepted
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
    """The candidate watermarks of rows, with the source partition of each."""
    asked = rows.column(ASKED).to_numpy(zero_copy_only=False)
    if partition_by is not None:
        return Trace(asked, partition_keys(rows.column(partition_by)))
    whole = partition_of(rows).decode()
    return Trace(asked, [whole] * len(rows) if whole else None)


def partition_key(name: str) -> str:
    """A source partition by its name, as ``partition_keys`` has it for a value; empty for no name."""
    return name and f"={name}"


def of_partition(rows: pa.RecordBatch, key: bytes) -> pa.RecordBatch:
    """Rows all of which are of one source partition. Empty ``key``: a column divides them, or nothing."""
    return rows.replace_schema_metadata({_PARTITION: key}) if key else rows


def partition_of(rows: pa.RecordBatch) -> bytes:
    """The key that ``of_partition`` has given rows; empty if it has given none."""
    return bytes((rows.schema.metadata or {}).get(_PARTITION, b""))


def partition_keys(column: pa.Array) -> list[str]:
    """A text per row that names its source partition: ``null``, or ``=`` and the value."""
    texts = pc.binary_join_element_wise("=", column.cast(pa.string()), "", null_handling="emit_null")
    return pc.fill_null(texts, "null").to_pylist()  # type: ignore[no-any-return]


def kinds_of(contract: type[Contract]) -> dict[str, str]:
    """Name in the source -> Spark SQL type of the field."""
    kinds = schema(contract).types
    fields = {id(model_field): name for name, model_field in contract.model_fields.items()}
    return {name: kinds[fields[id(model_field)]] for name, model_field in inputs_of(contract).items()}


def texts_of_literals(contract: type[Contract]) -> dict[str, dict[str, object]]:
    """Name in the source -> {text: value} of fields whose allowed values are numbers or booleans, for formats that hold only text."""
    texts = {}
    for name, model_field in inputs_of(contract).items():
        values = [value for value in allowed_values(model_field.annotation) if not isinstance(value, str)]
        if values:
            texts[name] = {str(value).lower() if isinstance(value, bool) else str(value): value for value in values}
    return texts


def _text_of(value: object) -> bytes:
    """A row for the quarantine as JSON; a map whose keys JSON does not have is a list of pairs."""
    try:
        return json.dumps(value, default=str).encode()
    except TypeError:
        fields = {name: _plain(field) for name, field in value.items()} if isinstance(value, dict) else _plain(value)
        return json.dumps(fields, default=str).encode()


def _plain(value: object) -> object:
    """A value as plain Arrow input: a model as its fields, a dictionary as its pairs, a member of an enum as its value."""
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
    """Bytes as text, and whether the text is exact; bytes that are no UTF-8 are written in hex behind a backslash."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="backslashreplace"), False
