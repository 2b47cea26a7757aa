"""Metadata that Dagster shows of an asset: columns from its definition; rows, lateness, coverage and a chart from each materialization; and its freshness policy."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.compiler.lineage import Columns, Origins
from floodmark.core.time import Interval, describe
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.coverage import Segment
from floodmark.observe import charts
from floodmark.observe import coverage as states
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.contract import Contract
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.values.schema import PARTITION, RETRACTION, ROW, Column, Schema
from floodmark.spec.windowing.partitions import Daily
from floodmark.spec.workspace import Workspace

_MOST_ROWS = 50
"""Most rows of a table in metadata: Dagster keeps every row in its event log."""
_MOST_BARS = 31
_MOST_SOURCES = 3
"""Most columns of inputs that the description of a column names."""


def columns(schema: Schema, keys: Sequence[str] = (), origins: Columns = MappingProxyType({})) -> dg.TableSchema:
    """A schema as Dagster's table schema. A column that nobody has described is described by the columns that it is computed from."""
    described = [replace(one, description=one.description or _from(origins.get(one.name))) for one in schema.columns]
    return dg.TableSchema(columns=[_column(column, unique=list(keys) == [column.name]) for column in described])


def _from(sources: Origins | None) -> str:
    if not sources:
        return ""
    tables = sorted({table for table, _ in sources})
    if len(sources) > _MOST_SOURCES:
        return f"from {len(sources)} columns of {' and '.join(tables)}"
    return "from " + ", ".join(f"{table}.{name}" for table, name in sorted(sources))


def _column(column: Column, *, unique: bool) -> dg.TableColumn:
    constraints = dg.TableColumnConstraints(nullable=column.nullable, unique=unique)
    return dg.TableColumn(column.name, column.type, column.description or None, constraints)


def static(
    schema: Schema, path: str, keys: Sequence[str] = (), origins: Columns = MappingProxyType({})
) -> dict[str, Any]:
    """Metadata of an asset's definition: columns, path and kind of storage."""
    return {
        "dagster/column_schema": columns(schema, keys, origins),
        "dagster/uri": path,
        "dagster/storage_kind": "deltalake",
    }


def of_output(lake: Lake, output: Output, origins: Columns) -> dict[str, Any]:
    """Metadata of an output's definition: columns, path of the table that people read, and path of its changelog if that is another table."""
    about = static(output.schema, lake.output((output.current or output).table), output.keys, origins)
    return about | ({"changelog": lake.output(output.table)} if output.current else {})


def lineage(keys: Mapping[str, dg.AssetKey], origins: Columns) -> dict[str, Any]:
    """Metadata of an output's definition: from which columns of which assets each of its columns is computed.

    Args:
        keys: table -> its asset.
        origins: column -> columns of tables.
    """
    deps = {
        column: [dg.TableColumnDep(asset_key=keys[table], column_name=name) for table, name in sorted(sources)]
        for column, sources in origins.items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)} if deps else {}


def code(defined: Operator | type[Contract]) -> dict[str, Any]:
    """Metadata of a definition: where it stands in the code; empty for what no file holds."""
    if isinstance(defined, Operator):
        path, _, line = defined.location.rpartition(":")
        label = defined.name
    else:
        try:
            path, line, label = (
                inspect.getsourcefile(defined) or "",
                str(inspect.getsourcelines(defined)[1]),
                defined.__name__,
            )
        except (OSError, TypeError):  # made at run time
            return {}
    if not path or not Path(path).is_file():
        return {}
    reference = dg.LocalFileCodeReference(file_path=str(Path(path).resolve()), line_number=int(line), label=label)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def people_rows(lake: Lake, output: Output) -> dict[str, int]:
    """Asset partition -> number of rows that people see, from the counts in the table's log, without retractions and markers.

    Empty for a table that is not divided or does not exist.
    """
    table = output.current or output
    try:
        actions = pa.table(DeltaTable(lake.output(table.table)).get_add_actions(flatten=True))
    except TableNotFoundError:
        return {}
    name = f"partition.{PARTITION}"
    if name not in actions.column_names:
        return {}
    keys = actions[name].to_pylist()
    rows_by_key: dict[str, int] = {}
    for key, rows in zip(keys, actions["num_records"].to_pylist(), strict=True):
        if key is not None:
            rows_by_key[key] = rows_by_key.get(key, 0) + int(rows or 0)
    return rows_by_key


def people_count(lake: Lake, output: Output) -> int:
    """Number of rows that people see in a table that is not divided: rows minus retractions; 0 if the table does not exist."""
    try:
        rows = DeltaTable(lake.output((output.current or output).table)).to_pyarrow_dataset()
    except TableNotFoundError:
        return 0
    if "_kind" not in rows.schema.names:
        return int(rows.count_rows())
    added, taken = (rows.count_rows(filter=pc.field("_kind") == kind) for kind in (ROW, RETRACTION))
    return int(added - taken)


def of_run(result: RunResult, output: Output, origins: Columns) -> dict[str, Any]:
    """Metadata of a bounded run for one output, with the columns that the run wrote: a later definition may have others."""
    done = not result.skipped or any(result.rows.values())
    return {
        "dagster/column_schema": columns(output.schema, output.keys, origins),
        "version": result.version,
        "interval": str(result.interval),
        "computed": done,
        "rows written": result.rows.get(output.table, 0),
        "retractions": result.retractions,
        "late": result.late,
        "dropped": result.dropped,
        "seconds": round(result.seconds, 3),
        "watermark": describe(result.watermark),
        "why": dg.MetadataValue.md(
            "\n".join(f"- {text}" for text in (*result.reasons[:_MOST_ROWS], *result.warnings)) or "first run"
        ),
    }


def previewed(previews: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Metadata of what a run would do, as it was shown before the run: a list for each stretch."""
    text = "\n\n".join("\n".join([head, *(f"- {fact}" for fact in facts)]) for head, *facts in previews)
    return {"preview": dg.MetadataValue.md(text)} if text else {}


def coverage(segments: Iterable[Segment], whole: Interval) -> dict[str, Any]:
    """Metadata of coverage: a table of event time and the version that computed it, the number of stale stretches, and the gaps in ``whole``."""
    parts = list(segments)
    missing = whole.minus([part.interval for part in parts])
    records = [
        dg.TableRecord(
            {
                "from": describe(part.interval.start),
                "to": describe(part.interval.end),
                "version": part.entry.version,
                "computed at": part.entry.at,
                "state": f"stale: {part.stale}" if part.stale else "fresh",
            }
        )
        for part in parts[-_MOST_ROWS:]
    ]
    return {
        "coverage": dg.MetadataValue.table(records) if records else "nothing is computed",
        "stale stretches": sum(bool(part.stale) for part in parts),
        "gaps": dg.MetadataValue.md("\n".join(f"- {part}" for part in missing[:_MOST_ROWS]) or "none"),
    }


def covered(workspace: Workspace, lake: Lake, operator: str, whole: Interval, late_rows: LateRows) -> dict[str, Any]:
    """Metadata ``partitions``: a picture of the states of an operator's partitions, and of those of the operators that it reads or that read it."""
    drawn = states.picture(states.connected(workspace, operator), lake, whole, late_rows)
    return {"partitions": dg.MetadataValue.md(_image("asset partitions by state", drawn))}


def _image(title: str, svg: str) -> str:
    return f"{title}\n\n![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def picture(rows: Mapping[str, int], title: str) -> dict[str, Any]:
    """Metadata ``plot``: a bar chart of the rows of the newest partitions; empty for fewer than two partitions."""
    shown = dict(sorted(rows.items())[-_MOST_BARS:])
    if len(shown) < 2:  # noqa: PLR2004 - one bar says no more than its number
        return {}
    return {"plot": dg.MetadataValue.md(_image(title, charts.bars(shown, "rows")))}


# ---- freshness as Dagster's own policy, which is judged by the age of the newest materialization; the check `stream` judges the watermark itself

_REPORTED_SECONDS = 300.0
"""Least time between two materializations that the sensor `streams` reports of an asset that is not divided, in a workspace of few assets."""
_FEW = 2
"""Assets that are not divided above which that time grows with their number, so that the event log does not."""
_LOOK_SECONDS = 60
"""Longest time until a sensor that is due has looked."""


def reported_seconds(workspace: Workspace) -> float:
    """Least time between two materializations of an asset that is not divided, s."""
    undivided = sum(len(one.operator.outputs) for one in workspace.operator_assets if one.partitions is None)
    others = len(workspace.source_assets) + len(workspace.deliveries)
    return _REPORTED_SECONDS * max(1.0, (others + undivided) / _FEW)


def freshness_policy(asset: SourceAsset | OperatorAsset, workspace: Workspace) -> dg.FreshnessPolicy | None:
    """Dagster's policy for the freshness of an asset; None without one.

    A materialization is reported for each completed partition, or of an asset that is not divided every five minutes or more: so much longer than the freshness
    is the window, so that the policy fails only where the check fails too.

    Args:
        asset: the asset.
        workspace: that it is part of.
    """
    if asset.freshness is None:
        return None
    pause = timedelta(seconds=reported_seconds(workspace))
    if isinstance(asset, OperatorAsset) and asset.partitions is not None:
        pause = timedelta(hours=25 if isinstance(asset.partitions, Daily) else 1)
    window = timedelta(milliseconds=asset.freshness, seconds=_LOOK_SECONDS) + pause
    return dg.FreshnessPolicy.time_window(fail_window=window)
