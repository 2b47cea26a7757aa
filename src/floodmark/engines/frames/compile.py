"""Steps -> DataFrames of stamped rows. The same code compiles bounded and streaming DataFrames.

No step may remove time: markers (``_kind`` 1) pass every filter, and functions never see markers. Functions never see failed rows (3)
either, which are quarantined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from floodmark.engines.frames.attempts import attempted, made
from floodmark.engines.frames.expecting import FILTERED, expected
from floodmark.engines.frames.expressions import Rendering, as_written, guarded, on_sail, value, with_columns
from floodmark.engines.frames.narrowing import narrowed
from floodmark.lake.stream.answers import RecordedAnswers
from floodmark.lake.stream.answers import at as recorded_at
from floodmark.lake.stream.lookups import answers_of
from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.kernels.attempts import attempts, is_column, stage_attempts
from floodmark.semantics.kernels.calls import answer_schema, called
from floodmark.semantics.kernels.columnar import GROUP, KEY_GROUP
from floodmark.semantics.kernels.failures import FAILURE_TYPE, Failure, Mapped, failed_kinds, flat_mapped, plain_texts
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.semantics.time.assignment import kind_of
from floodmark.spec.graph import steps
from floodmark.spec.graph.interleaving import interleaving
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.values.schema import CARRIED, FAILED, FAILURE, QUARANTINE, RETRACTION, ROW, STAMP_DDL, STAMPS, TAG
from floodmark.spec.windowing.windows import WindowAssigner

_APART = "_apart"
CARRIER = "_carrier"
"""The column on which Spark's watermark is defined in streams; steps carry this column along if their input has it."""
_RIDING = {CARRIER: "timestamp", CARRIED: "binary"}
"""Columns that steps carry along if their input has them, with their types."""
_TOGETHER, _TOGETHER_BYTES = 1 << 16, 1 << 24
"""Rows, or bytes, of a batch that looks up answers."""
EVERYWHERE = -1
"""Key group of a row for all key groups, where it is there once."""


def compiled(
    step: steps.Step,
    inputs: Mapping[str, DataFrame],
    known: Mapping[steps.Step, DataFrame] | None = None,
    rendering: Rendering = as_written,
) -> DataFrame:
    """The DataFrame of a step: its columns, then the stamps (and the carrier).

    Args:
        step: stateless, as are all steps from there to ``known`` and the inputs.
        inputs: input name -> stamped rows.
        known: step -> its DataFrame, of steps that are computed already: the stateful step.
        rendering: of expressions, for the session of the frames.
    """
    if known and step in known:
        return known[step]
    step = narrowed(step, known or ())
    parents = [compiled(parent, inputs, known, rendering) for parent in step.parents]
    match step:
        case steps.Read():
            return inputs[step.input]
        case steps.Filter() if steps.quarantines(step):
            rows = attempted(_apart(parents[0], step), attempts(step), rendering=rendering)
            return filtered(rows, made(rows, 0), above=_has_lambda(step)).select(*step.schema.names, *_stamps(rows))
        case steps.Filter():
            condition = rendering(step.condition, step.parent.schema)
            apart = _apart(parents[0], step)
            rows = filtered(apart, condition, above=_has_lambda(step))
            return rows if apart is parents[0] else rows.drop(_APART)
        case steps.Expect():
            return expected(parents[0], step, rendering)
        case steps.Project():
            tried = attempts(step) if steps.quarantines(step) else ()
            rows = attempted(_apart(parents[0], step), tried, rendering=rendering) if tried else parents[0]
            places = iter(range(len(tried)))
            columns = [
                made(rows, next(places))
                if tried and not is_column(text, step.parent.schema)
                else value(text, kind, step.parent.schema, rendering)
                for (_, text), kind in zip(step.columns, step.schema.types.values(), strict=True)
            ]
            names = [name for name, _ in step.columns]
            return rows.selectExpr(*(f"{c} AS `{n}`" for c, n in zip(columns, names, strict=True)), *_stamps(rows))
        case steps.FlatMap():
            riding = [f"`{name}` {kind}" for name, kind in _RIDING.items() if name in parents[0].columns]
            failing = steps.quarantines(step) or FAILURE in parents[0].columns
            failure = f"`{FAILURE}` struct<{QUARANTINE.ddl()}>" if failing else ""
            ddl = ", ".join(filter(None, (step.schema.ddl(), STAMP_DDL, *riding, failure)))
            return without_filtered(parents[0]).mapInArrow(_flat_map(step), ddl)
        case steps.Union():
            numbered = [
                with_columns(parent, {"_sequence": interleaving(step, i).sql("`_sequence`")})
                for i, parent in enumerate(parents)
            ]
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), numbered)
        case steps.WindowAggregate() | steps.KeyedProcess() | steps.IntervalJoin():
            message = "a stateful step is compiled by its host"
            raise TypeError(message)
        case _:
            assert_never(step)


def failures(
    operator: Operator,
    inputs: Mapping[str, DataFrame],
    known: Mapping[steps.Step, DataFrame] | None = None,
    rendering: Rendering = as_written,
) -> DataFrame | None:
    """The stamped rows that stateless steps quarantine; None if no stateless step can quarantine rows.

    Args:
        operator: of the steps.
        inputs: input name -> stamped rows.
        known: the stateful step -> its DataFrame.
        rendering: of expressions, for the session of the frames.
    """
    before = [without_filtered(compiled(step, inputs, known, rendering)) for step in failing(operator)]
    failed = [rows.filter(f"`_kind` >= {FAILED}") for rows in before]
    if not failed:
        return None
    stamps = [name for name in STAMPS if name != "_kind"]
    rows = reduce(lambda a, b: a.union(b), [rows.select(f"{FAILURE}.*", *stamps) for rows in failed])
    rows = (
        rows.dropDuplicates() if len(failed) > 1 else rows
    )  # a row that fails below two of the steps is in both frames
    rows = rows.mapInArrow(_plain_texts, ", ".join(f"`{name}` {kind}" for name, kind in rows.dtypes))
    return with_columns(rows, {"_kind": f"CAST({ROW} AS int)"})


def _plain_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for name in ("key", "given"):
            table = table.set_column(table.column_names.index(name), name, plain_texts(table[name]))
        yield from table.combine_chunks().to_batches()


def failing(operator: Operator) -> tuple[steps.Step, ...]:
    """The last steps that can quarantine rows, among the stateless ones after the stateful step; rows that fail before them pass them."""
    return tuple(dict.fromkeys(step for _, result in operator.results for step in _failing(result)))


def _failing(step: steps.Step) -> Iterator[steps.Step]:
    if isinstance(step, steps.STATEFUL):
        return
    if steps.quarantines(step):
        yield step
        return
    for parent in step.parents:
        yield from _failing(parent)


def set_aside_before(stage: AnyStage, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The rows that fail before the stateful step, as rows of the quarantine, with the stamps of the input."""
    rows = stage_rows(stage, compiled(stage.step.parent, inputs))
    if "failure" not in rows.columns:
        rows = with_columns(rows.filter("false"), {"failure": f"CAST(NULL AS struct<{QUARANTINE.ddl()}>)"})
    stamps = ["timestamp_millis(t) AS `_event_time`", "s AS `_sequence`"]
    return rows.filter(f"kind >= {FAILED}").selectExpr("failure.*", *stamps)


def without_failures(rows: DataFrame) -> DataFrame:
    """The rows that did not fail, and that no filter has taken out."""
    rows = without_filtered(rows)
    return rows.filter(f"`_kind` <> {FAILED}").drop(FAILURE) if FAILURE in rows.columns else rows


def without_filtered(rows: DataFrame) -> DataFrame:
    """The rows that no filter has taken out."""
    return rows.filter(f"`_kind` < {FILTERED}") if on_sail(rows) else rows


def _apart(rows: DataFrame, step: steps.Step) -> DataFrame:
    """Rows on Sail with a column that keeps the conditions of a step from moving below steps that compute columns, filter or try as well.

    Sail moves conditions down through columns that are computed, and writes each of these out as often as it stands there: ``_kind`` stands three
    times in the next ``_kind`` of a chain of filters, so a chain of ten had 3^10 conditions; so do columns that are computed of themselves.
    Numbers of rows are not moved.
    """
    below = (each for parent in step.parents for each in steps.walk(parent))
    if not on_sail(rows) or not any(isinstance(each, (steps.Filter, steps.Project)) for each in below):
        return rows
    return rows.selectExpr("*", f"monotonically_increasing_id() AS `{_APART}`")


def _has_lambda(step: steps.Step) -> bool:
    """Whether a filter, or a column before it, is computed by a function of a function, such as ``exists(tags, x -> x = 'a')``."""
    filters = [each for each in steps.walk(step) if isinstance(each, (steps.Filter, steps.Project))]
    texts = [[s.condition] if isinstance(s, steps.Filter) else [text for _, text in s.columns] for s in filters]
    return any("->" in text for own in texts for text in own)


def filtered(rows: DataFrame, condition: str, *, above: bool = False) -> DataFrame:
    """The rows for which a condition is true, and all markers.

    On Sail the other rows are marked as ``FILTERED`` instead, until ``without_filtered``, so that the guard of each expression leaves them
    out: Sail may compute an expression before the filter below it, and fail for a row that the filter takes out.

    Args:
        rows: stamped.
        condition: SQL text for the session.
        above: Sail leaves the filter above the reading of files. Within that it does not find the columns of a function of a function.
    """
    if not on_sail(rows):
        return rows.filter(guarded(condition, "true"))
    condition = f"rand() < 2 AND ({condition})" if above else condition
    kind = guarded(f"CASE WHEN ({condition}) THEN `_kind` ELSE CAST({FILTERED} AS int) END", "`_kind`")
    return with_columns(rows, {"_kind": kind})


def group_of(keys: Sequence[str], groups: int) -> str:
    """SQL over keys, each as SQL text: the key group."""
    return f"CAST(pmod(xxhash64({', '.join(keys)}), {groups}) AS int)" if keys else "0"


def stage_rows(
    stage: AnyStage, rows: DataFrame, rendering: Rendering = as_written, *, spread: bool = True
) -> DataFrame:
    """Rows with the columns of the stage's ``pack``: ``group``, keys, event time in ms, stamps, values, ``row``, ``side``.

    Beside these, ``key_group`` for a stage whose key groups lie in bundles; ``group`` is then the bundle.

    Args:
        stage: that takes them.
        rows: stamped.
        rendering: of expressions.
        spread: whether a row for all keys is there once per key group; otherwise once, with the group ``EVERYWHERE``.
    """
    step = stage.step
    tried = stage_attempts(stage) if steps.quarantines(step) else ()
    if tried:
        rows = attempted(_apart(rows, step), [attempt for _, attempt in tried], step.keys, rendering)
    values = {index: made(rows, number) for number, (index, _) in enumerate(tried)}
    keys = [plain_key(rows, key) for key in step.keys]
    group, key_group = group_of(keys, step.groups), group_of(keys, step.key_groups or step.groups)
    if step.broadcast is not None:
        everyone = f"`{TAG}` = {step.broadcast}" + (f" AND `{CARRIED}` IS NULL" if CARRIED in rows.columns else "")
        each = f"explode(if({everyone}, sequence(0, {step.groups - 1}), array({group})))"
        group = each if spread else f"if({everyone}, {EVERYWHERE}, {group})"
        key_group = f"if({everyone}, {EVERYWHERE}, {key_group})"
    columns = [f"{group} AS `{GROUP}`", *([f"{key_group} AS `{KEY_GROUP}`"] if step.key_groups else [])]
    columns += [*(f"{key} AS k{i}" for i, key in enumerate(keys))]
    columns += [
        "coalesce(unix_millis(`_event_time`), 0) AS t",
        "`_watermark` AS w",
        "`_sequence` AS s",
        "`_kind` AS kind",
    ]
    columns += [
        f"{values.get(j, value(v.sql, v.type, step.parent.schema, rendering))} AS v{j}"
        for j, v in enumerate(stage.values)
    ]
    whole = f"struct({', '.join(f'`{name}`' for name in step.parent.schema.names)})"
    if stage.whole_rows or step.reduces:
        columns.append(f"{whole} AS `row`")
    if isinstance(step, steps.WindowAggregate) and step.late == "side_output":
        columns.append(f"CASE WHEN {guarded(maybe_dropped(step), 'false')} THEN {whole} END AS side")
    if FAILURE in rows.columns:
        columns.append(f"`{FAILURE}` AS failure")
    if CARRIED in rows.columns:
        columns.append(f"`{CARRIED}`")
    projected = rows.selectExpr(*columns)
    if step.only is not None:
        computed = ", ".join(map(str, (EVERYWHERE, *step.only)))
        projected = projected.filter(f"kind NOT IN ({ROW}, {RETRACTION}) OR `group` IN ({computed})")
    return projected.filter(f"kind < {FILTERED}") if on_sail(rows) else projected


def maybe_dropped(step: steps.WindowAggregate) -> str:
    """A SQL condition that is true for every row which is dropped for all its windows; exact for tumbling and sliding windows."""
    if step.time == "processing":  # no row is too late by the clock, but an assigner may name windows that are over
        return "true" if isinstance(step.window, WindowAssigner) else "false"
    return kind_of(step.window).sql_maybe_dropped("unix_millis(`_event_time`)", step.allowed_lateness, "`_watermark`")


def _stamps(rows: DataFrame) -> list[str]:
    return [name for name in (*STAMPS, *_RIDING, FAILURE) if name in rows.columns]


def plain_key(rows: DataFrame, column: str) -> str:
    """SQL text of a key column in which -0.0 is 0.0, and NaN has no sign, so that both are one key, as in SQL's GROUP BY. Processors make NaN with a sign of 0/0."""
    kind = rows.schema[column].dataType.simpleString()
    if kind not in {"float", "double"}:
        return f"`{column}`"
    return f"CASE WHEN isnan(`{column}`) THEN CAST('NaN' AS {kind}) ELSE `{column}` + CAST(0 AS {kind}) END"


def _flat_map(step: steps.FlatMap) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in _together(batches) if isinstance(step.function, Lookup) else batches:
            stamped = [name for name in (*STAMPS, *_RIDING) if name in batch.schema.names]
            payload = [name for name in batch.schema.names if name not in {*stamped, FAILURE}]
            rows, kinds = pa.table(batch.select(payload)), batch.column("_kind")
            if isinstance(step, steps.Call):
                times = _milliseconds(batch.column("_event_time"))
                mapped = called(step, rows, kinds.to_numpy(), times, _answers(step), answers_of)
            else:
                mapped = flat_mapped(step, rows, kinds.to_pylist())
            table = mapped.rows
            for name in stamped:
                column = batch.column(name)
                table = table.append_column(
                    name, failed_kinds(mapped, column) if name == "_kind" else column.take(mapped.origin)
                )
            if FAILURE in batch.schema.names or steps.quarantines(step):
                table = table.append_column(FAILURE, _failures(mapped, batch))
            yield from table.combine_chunks().to_batches()

    return run


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of more rows: the recorded answers of a lookup are read and written once for each."""
    held, size, weight = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        held.append(batch)
        size, weight = size + batch.num_rows, weight + batch.nbytes
        if size >= _TOGETHER or weight >= _TOGETHER_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, size, weight = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _milliseconds(moments: pa.Array) -> Ints:
    """Event times, instants or ms already, in ms; 0 for none."""
    if pa.types.is_integer(moments.type):
        return pc.fill_null(moments, 0).to_numpy()  # type: ignore[no-any-return]
    micros = pc.fill_null(moments.cast(pa.timestamp("us", moments.type.tz)).cast(pa.int64()), 0)
    return micros.to_numpy() // 1000  # type: ignore[no-any-return]


def _answers(step: steps.Call) -> RecordedAnswers | None:
    """The recorded answers of a step, in the process that computes the step; None if its answers are not recorded."""
    return recorded_at(step.folders, answer_schema(step), step.keep) if step.folders else None


def _failures(mapped: Mapped, batch: pa.RecordBatch) -> pa.Array:
    """The failure of each row, in this step or in a step before; null for a row that did not fail."""
    reasons: list[Failure | None] = [None] * len(mapped.origin)
    if FAILURE in batch.schema.names:
        reasons = batch.column(FAILURE).take(mapped.origin).to_pylist()
    for index, failure in mapped.failures.items():
        reasons[index] = failure
    return pa.array(reasons, FAILURE_TYPE)
