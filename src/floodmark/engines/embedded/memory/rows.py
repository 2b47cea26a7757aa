"""Rows of stateless steps, and input rows of a stage, computed over Arrow tables.

A table here has the columns of its step, then ``_event_time`` in ms, ``_watermark``, ``_progress``, ``_sequence`` and ``_kind``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.memory.values import check_computable, values
from floodmark.engines.embedded.retries.halving import failing
from floodmark.engines.embedded.retries.reasons import reason
from floodmark.lake.stream.lookups import answers_of
from floodmark.semantics.aggregates.numbers import normal
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.attempts import Attempt, attempts, column_called
from floodmark.semantics.kernels.calls import called
from floodmark.semantics.kernels.failures import Failure, expression_failure, flat_mapped, set_aside, unmet
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.graph import steps
from floodmark.spec.graph.interleaving import Interleaving, interleaving
from floodmark.spec.values.schema import ROW, TAG, Schema

STAMPS = ("_event_time", "_watermark", "_progress", "_sequence", "_kind")

STAMP_SCHEMA = pa.schema([*((name, pa.int64()) for name in STAMPS[:-1]), ("_kind", pa.int32())])

Known = dict[steps.Step, pa.Table]


def empty(schema: Schema) -> pa.Table:
    """An empty table with the columns of a step."""
    return pa.schema([*arrow_schema(schema), *STAMP_SCHEMA]).empty_table()


@dataclass(slots=True)
class Rows:
    """Computes the stateless steps of an operator, one after the other, each over all rows at once."""

    failures: dict[steps.Step, pa.Table] = field(default_factory=dict)
    """Step -> rows that it has quarantined since this was last cleared, as side rows."""

    def of(self, step: steps.Step, inputs: Mapping[str, pa.Table], known: Known | None = None) -> pa.Table:
        """The rows of a step.

        Args:
            step: stateless, as are all steps from there to ``known`` and the inputs.
            inputs: input name -> stamped rows.
            known: step -> rows that are computed already; rows of other steps are added.
        """
        known = {} if known is None else known
        if step not in known:
            known[step] = self._computed(step, inputs, known)
        return known[step]

    def of_stage(self, stage: AnyStage, rows: pa.Table) -> pa.Table:
        """Rows with the columns of the stage's ``pack``."""
        step, schema = stage.step, stage.step.parent.schema
        tried = [
            Attempt(step=f"step '{step.uid}'", text=value.sql, type=value.type, schema=schema) for value in stage.values
        ]
        rows, computed = self._values(step, rows, tried, step.keys)
        keys = [normal(rows[key]) for key in step.keys]
        columns = {
            "group": _groups(keys, rows.num_rows, step.groups),
            **{f"k{place}": key for place, key in enumerate(keys)},
            "t": pc.fill_null(rows["_event_time"], 0),
            **{short: rows[name] for short, name in (("w", "_watermark"), ("s", "_sequence"), ("kind", "_kind"))},
            **{f"v{place}": column for place, column in enumerate(computed)},
        }
        if stage.whole_rows or step.reduces:
            columns["row"] = _whole(rows, schema)
        if isinstance(step, steps.WindowAggregate) and step.late == "side_output":
            columns["side"] = _whole(rows, schema)
        table = pa.table(columns)
        return table if step.broadcast is None else _broadcast(table, rows[TAG], step.broadcast, step.groups)

    def _computed(self, step: steps.Step, inputs: Mapping[str, pa.Table], known: Known) -> pa.Table:
        match step:
            case steps.Read():
                return inputs[step.input].select([*step.schema.names, *STAMPS]).cast(_schema(step))
            case steps.Filter():
                rows, (holds,) = self._values(step, self.of(step.parent, inputs, known), attempts(step))
                return rows.filter(pc.or_(pc.greater(rows["_kind"], ROW), pc.fill_null(holds, False)))
            case steps.Expect():
                return self._expected(step, self.of(step.parent, inputs, known))
            case steps.Project():
                rows, columns = self._values(step, self.of(step.parent, inputs, known), _columns(step))
                stamps = [rows[name] for name in STAMPS]
                return pa.table([*columns, *stamps], [*step.schema.names, *STAMPS]).cast(_schema(step))
            case steps.FlatMap():
                return self._flat_mapped(step, self.of(step.parent, inputs, known)).cast(_schema(step))
            case steps.Union():
                parts = [
                    _renumbered(self.of(parent, inputs, known), interleaving(step, place))
                    for place, parent in enumerate(step.parents)
                ]
                return pa.concat_tables([part.select(_schema(step).names).cast(_schema(step)) for part in parts])
            case _:
                message = "a stateful step is computed by its kernel"
                raise TypeError(message)

    def _values(
        self, step: steps.Step, rows: pa.Table, tried: Sequence[Attempt], keys: Sequence[str] = ()
    ) -> tuple[pa.Table, list[pa.ChunkedArray]]:
        """Rows and the values of expressions, null for markers; a quarantining step leaves out rows for which an expression fails.

        Args:
            step: of the expressions.
            rows: stamped.
            tried: the expressions.
            keys: columns of the key, for the quarantine.
        """
        real = pc.less_equal(rows["_kind"], ROW)
        unmarked = rows.filter(real)
        if steps.quarantines(step):
            failed = _failures(unmarked, tried)
            why = [_failure(unmarked.slice(place, 1), *blamed, keys) for place, blamed in failed.items()]
            self.failures[step] = set_aside([one for one in why if one is not None])
            stays = np.ones(unmarked.num_rows, dtype=bool)
            stays[list(failed)] = False
            every = np.ones(rows.num_rows, dtype=bool)
            every[np.flatnonzero(real.to_numpy())] = stays
            rows = rows.filter(pa.array(every))
            real, unmarked = pc.less_equal(rows["_kind"], ROW), unmarked.filter(pa.array(stays))
        computed = values(unmarked, tried)
        if unmarked.num_rows == rows.num_rows:
            return rows, computed
        places = pa.array(np.where(real.to_numpy(), np.cumsum(real.to_numpy()) - 1, -1))
        places = pc.if_else(pc.less(places, 0), None, places)
        return rows, [column.take(places) for column in computed]

    def _expected(self, step: steps.Expect, rows: pa.Table) -> pa.Table:
        """The rows that meet all expectations, and markers; the others are set aside."""
        schema, real = step.parent.schema, pc.less_equal(rows["_kind"], ROW)
        unmarked = rows.filter(real)
        tried = [Attempt(step=name, text=unmet, type="boolean", schema=schema) for name, _, unmet in step.expectations]
        fails = np.stack([column.to_numpy() for column in values(unmarked, tried)]).astype(bool)
        aside = []
        for index in np.flatnonzero(fails.any(axis=0)):
            name, description, _ = step.expectations[int(fails[:, index].argmax())]
            (row,) = unmarked.slice(int(index), 1).to_pylist()
            if row["_kind"] == ROW:
                values_of = {column: row[column] for column in schema.names}
                aside.append(
                    (row["_event_time"], row["_watermark"], row["_sequence"], unmet(name, description, values_of))
                )
        self.failures[step] = set_aside(aside)
        stays = np.ones(rows.num_rows, dtype=bool)
        stays[np.flatnonzero(real.to_numpy())] = ~fails.any(axis=0)
        return rows.filter(pa.array(stays))

    def _flat_mapped(self, step: steps.FlatMap, rows: pa.Table) -> pa.Table:
        columns, kinds = rows.select(list(step.parent.schema.names)), rows["_kind"]
        if isinstance(step, steps.Call):
            times = pc.fill_null(rows["_event_time"], 0).to_numpy()
            mapped = called(step, columns, kinds.to_numpy(), times, None, answers_of)
        else:
            mapped = flat_mapped(step, columns, kinds.to_pylist())
        stamps = rows.select(STAMPS).take(mapped.origin)
        table = mapped.rows
        for name in STAMPS:
            table = table.append_column(name, stamps[name])
        if steps.quarantines(step):
            whose = ("_event_time", "_watermark", "_sequence")
            at = list(zip(*(stamps[name].to_pylist() for name in whose), strict=True))
            self.failures[step] = set_aside([(*at[place], why) for place, why in mapped.failures.items()])
            table = table.filter(
                pa.array([place not in mapped.failures for place in range(table.num_rows)], pa.bool_())
            )
        return table


def _schema(step: steps.Step) -> pa.Schema:
    return pa.schema([*arrow_schema(step.schema), *STAMP_SCHEMA])


def _columns(step: steps.Project) -> list[Attempt]:
    """An attempt for every column of a step, also for plain columns of its parent."""
    kinds, schema = step.schema.types, step.parent.schema
    return [
        Attempt(step=column_called(name), text=text, type=kinds[name], schema=schema) for name, text in step.columns
    ]


def _renumbered(rows: pa.Table, by: Interleaving) -> pa.Table:
    """Rows with the numbers of a union."""
    whole = pc.divide(rows["_sequence"], by.size)
    inner = pc.subtract(rows["_sequence"], pc.multiply(whole, by.size))
    within = pc.add(pc.multiply(inner, by.parents), by.index)
    numbers = pc.add(pc.multiply(whole, by.most * by.parents), within)
    return rows.set_column(rows.column_names.index("_sequence"), "_sequence", numbers)


def _whole(rows: pa.Table, schema: Schema) -> pa.StructArray:
    columns = [rows[name].combine_chunks() for name in schema.names]
    return pa.StructArray.from_arrays(columns, fields=list(arrow_schema(schema)))


# ---- key groups


def _groups(keys: Iterable[pa.ChunkedArray], size: int, groups: int) -> pa.Array:
    """The key group of each row; equal keys have the same group in every run."""
    total = np.zeros(size, dtype=np.uint64)
    for key in keys:
        total = total * np.uint64(31) + _hashes(key.combine_chunks())
    return pa.array((total % np.uint64(groups)).astype(np.int32))


def _hashes(column: pa.Array) -> np.ndarray:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    if pa.types.is_nested(column.type):
        return np.array([zlib.crc32(repr(value).encode()) for value in column.to_pylist()], dtype=np.uint64)
    coded = column.dictionary_encode(null_encoding="encode")
    hashes = [zlib.crc32(repr(value).encode()) for value in coded.dictionary.to_pylist()]
    return np.array(hashes, dtype=np.uint64)[coded.indices.to_numpy()] if len(column) else np.zeros(0, dtype=np.uint64)


def _broadcast(table: pa.Table, tags: pa.ChunkedArray, broadcast: int, groups: int) -> pa.Table:
    """Rows of the broadcast input, once per key group."""
    everywhere = pc.fill_null(pc.equal(tags, broadcast), False).to_numpy()
    times = np.where(everywhere, groups, 1)
    places = np.repeat(np.arange(table.num_rows), times)
    group = np.asarray(table["group"])[places]
    group[np.repeat(everywhere, times)] = np.tile(np.arange(groups, dtype=np.int32), int(everywhere.sum()))
    return table.take(pa.array(places)).set_column(0, "group", pa.array(group, pa.int32()))


# ---- rows for which an expression fails


def _failures(rows: pa.Table, tried: Sequence[Attempt]) -> dict[int, tuple[Attempt, str]]:
    """Index of each row for which an expression fails -> the expression and its message; searched by halving.

    Raises:
        ExecutionError: EXECUTION-006, an expression cannot be computed for any row.
    """
    checked = False

    def fails(start: int, stop: int) -> str | None:
        nonlocal checked
        try:
            values(rows.slice(start, stop - start), tried)
        except ExecutionError as error:
            if not checked:
                check_computable(tried)
                checked = True
            return error.got
        return None

    return {
        place: _blamed(rows.slice(place, 1), tried) or (tried[0], message)
        for place, message in failing(rows.num_rows, fails)
    }


def _blamed(row: pa.Table, tried: Sequence[Attempt]) -> tuple[Attempt, str] | None:
    """The expression that fails for a row, and its message."""
    for attempt in tried:
        try:
            values(row, [attempt])
        except ExecutionError as error:
            return attempt, reason(attempt, error.got)
    return None


def _failure(
    row: pa.Table, attempt: Attempt, message: str, keys: Sequence[str]
) -> tuple[int, int, int, Failure] | None:
    """A failed row as input of ``set_aside``; None for a retraction, as the row that it takes back was quarantined."""
    stamped = row.to_pylist()[0]
    if stamped["_kind"] != ROW:
        return None
    read = {name: stamped[name] for name in attempt.schema.names}
    key = {name: stamped[name] for name in keys} if keys else None
    why = expression_failure(attempt.step, attempt.explained(message), read, key)
    return stamped["_event_time"], stamped["_watermark"], stamped["_sequence"], why
