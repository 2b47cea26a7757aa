"""Windows computed in columns, before the shuffle: rows are classified by their stamps, and rows on time become partials."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.accumulators import Accumulators, Partials, Value, normalised
from floodmark.semantics.encoding.columns import result_schema
from floodmark.semantics.kernels.failures import split
from floodmark.semantics.time.assignment import assigner, classify_lateness
from floodmark.semantics.windows.kinds import Assigner
from floodmark.spec.graph.steps import WindowAggregate
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW
from floodmark.spec.windowing.windows import Calendar, Cumulative, Global, Sliding, Tumbling

GROUP = "group"
"""The column of the key group, or of the bundle of key groups."""
KEY_GROUP = "key_group"
"""The column of the key group of rows whose key groups lie in bundles."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stateful step, ready to compute. Frozen and picklable: it travels to the workers.

    Row columns, in and between the parts: ``k0...`` keys, ``t`` event time, ``w`` stamp, ``s`` sequence, ``kind``, ``v0...`` values,
    ``side`` the whole row where it may be too late.
    """

    step: WindowAggregate
    accumulators: Accumulators

    @staticmethod
    def of(step: WindowAggregate, *, revisable: bool) -> Stage:
        """The stage of a step whose input is or is not revisable."""
        return Stage(step, Accumulators.of(step, revisable=revisable))

    @property
    def keys(self) -> tuple[str, ...]:
        """Internal names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.step.keys)))

    @property
    def assigner(self) -> Assigner:
        """The window arithmetic."""
        window = self.step.window
        assert isinstance(window, (Tumbling, Sliding, Cumulative, Calendar, Global))  # see WindowAggregate.columnar
        return assigner(window)

    @property
    def values(self) -> tuple[Value, ...]:
        """The expressions that are computed for each row before the stage."""
        return self.accumulators.values

    @property
    def whole_rows(self) -> bool:
        """No function of the user sees the rows."""
        return False

    def pack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
        """See ``pack``."""
        return pack(self, batches)

    @property
    def result_schema(self) -> pa.Schema:
        """Columns of the emitted rows: the step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
        return result_schema(self.step.schema)


# ---- before the shuffle


def pack(stage: Stage, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
    """Classify and pre-aggregate rows: key group -> named tables, as of ``judged``."""
    return by_group(judged(stage, batches))


def judged(stage: Stage, batches: Iterable[pa.RecordBatch]) -> dict[str, pa.Table]:
    """Classify and pre-aggregate rows of all key groups.

    Args:
        stage: of the step.
        batches: with ``group`` and the row columns of ``Stage``; markers are ignored, as they only move time.

    Returns:
        Tables with a column ``group``, any of ``main``/``bagN`` (on-time partials by ``slice`` and ``from_end``), ``late`` (one row per late window),
        ``side`` (rows dropped for all their windows), ``dropped`` (``end``, ``n``) and ``failed`` (rows quarantined by earlier steps).
    """
    step, dims = stage.step, ["group", *stage.keys, "slice", "from_end"]
    parts: list[Partials] = []
    tables_by_name: dict[str, list[pa.Table]] = {"late": [], "side": [], "dropped": [], "failed": []}
    for batch in batches:
        rows, failed = split(pa.Table.from_batches([batch]))
        tables_by_name["failed"] += failed
        rows = normalised(rows.filter(pc.not_equal(rows["kind"], MARKER)), stage.keys)
        if rows.num_rows == 0:
            continue
        times, stamps = rows["t"].to_numpy().astype(np.int64), rows["w"].to_numpy().astype(np.int64)
        verdict = classify_lateness(stage.assigner, step.allowed_lateness, times, stamps)
        placed = rows.append_column("slice", pa.array(verdict.slices)).append_column(
            "from_end", pa.array(verdict.from_end)
        )
        placed = signed(placed.filter(pa.array(verdict.on_time)))
        if placed.num_rows:
            parts.append(stage.accumulators.partials(placed, dims))
        if len(verdict.late):
            late = rows.take(pa.array(verdict.late)).append_column("end", pa.array(verdict.late_end))
            tables_by_name["late"].append(late.drop_columns([n for n in ("side",) if n in late.column_names]))
        if len(verdict.dropped):
            lost = (
                rows.take(pa.array(verdict.dropped))
                .select(["group", "kind"])
                .append_column("end", pa.array(verdict.dropped_end))
            )
            once = pc.cast(pc.equal(lost["kind"], ROW), pa.int64())  # a retraction pair is one
            tables_by_name["dropped"].append(lost.drop_columns(["kind"]).append_column("n", once))
        if step.late == "side_output" and verdict.side.any():
            tables_by_name["side"].append(
                rows.filter(pa.array(verdict.side)).select(["group", "t", "w", "s", "kind", "side"])
            )
        if len(parts) > _MERGE_EVERY:
            parts = [stage.accumulators.merge(parts, dims)]
    tables = {
        name: pa.concat_tables(tables_of_name) for name, tables_of_name in tables_by_name.items() if tables_of_name
    }
    if "dropped" in tables:
        counts = tables["dropped"].group_by(["group", "end"], use_threads=False).aggregate([("n", "sum")])
        tables["dropped"] = counts.select(["group", "end", "n_sum"]).rename_columns(["group", "end", "n"])
    if parts:
        tables |= stage.accumulators.merge(parts, dims) if len(parts) > 1 else parts[0]
    return tables


_MERGE_EVERY = 16


def signed(rows: pa.Table) -> pa.Table:
    """Retractions count -1, rows 1."""
    return rows.append_column("sign", pc.if_else(pc.equal(rows["kind"], RETRACTION), -1, 1).cast(pa.int64()))


def by_group(tables: dict[str, pa.Table]) -> dict[int, dict[str, pa.Table]]:
    """Named tables with a column ``group`` -> the named parts of each group."""
    parts_by_group: dict[int, dict[str, pa.Table]] = {}
    for name, table in tables.items():
        ordered = table.take(pc.sort_indices(table["group"])) if table.num_rows else table
        groups = ordered["group"].to_numpy()
        bounds = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1], True]).tolist() if len(groups) else []
        ordered = ordered.drop_columns(["group"])
        for start, stop in itertools.pairwise(bounds):
            parts_by_group.setdefault(int(groups[start]), {})[name] = ordered.slice(start, stop - start)
    bags = {n: t.slice(0, 0).drop_columns(["group"]) for n, t in tables.items() if n.startswith("bag")}
    return {group: (bags | part if "main" in part else part) for group, part in parts_by_group.items()}
