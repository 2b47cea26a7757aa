"""Great Expectations' data docs: a site about the expectations of assets and how their rows meet them, for those who want it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.observe.expectations import as_session, expectation_of, great_expectations, plain
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.rows.drift import KINDS as DRIFTS
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import ROW
from floodmark.spec.windowing.partitions import predicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INDEX = Path("gx") / "uncommitted" / "data_docs" / "local_site" / "index.html"
"""Where Great Expectations puts a site by default."""

Rows = Callable[["SparkSession", Interval], "DataFrame"]
"""(session, interval of event time) -> rows of an output, as people see them, with stamps."""


def rows_of(asset: OperatorAsset, name: str, lake: Lake) -> Rows:
    """The rows of an output of an operator.

    Args:
        asset: the operator with its partitions.
        name: of the output.
        lake: the lake of its tables.
    """
    output = asset.operator.output(name)
    path = lake.output((output.current or output).table)

    def rows(session: SparkSession, interval: Interval) -> DataFrame:
        table = session.read.format("delta").load(path).filter(f"_kind = {ROW}")
        return table.filter(predicate(asset.partitions, interval)) if asset.partitions else table

    return rows


def write(
    asset: OperatorAsset, lake: Lake, interval: Interval, folder: Path, session: SparkSession
) -> tuple[Path, bool]:
    """Judge the expectations of an operator's outputs by Great Expectations, and write its data docs. Returns (the site's first page, whether all are met).

    All expectations are judged by Great Expectations itself, also those that checks compile; those of drift are left out, as it has none of these kinds.
    Results of earlier calls in the folder stay in the site.

    Args:
        asset: the operator with its expectations.
        lake: the lake of its tables.
        interval: event time of the rows; all of time for an asset that is not divided.
        folder: of the site.
        session: of Spark or Sail.

    Raises:
        CapabilityError: CAPABILITY-037, an expectation that only Spark computes, over rows of Sail.
        DefinitionError: DEFINITION-096, an expectation or argument that Great Expectations does not have.
    """
    gx, met = great_expectations(), True
    folder.mkdir(parents=True, exist_ok=True)
    with as_session(session) if _is_sail(session) else nullcontext():
        context = gx.get_context(mode="file", project_root_dir=str(folder))
        context.variables.progress_bars = {"globally": False}
        source = context.data_sources.add_or_update_spark("spark", persist=False)
        for name, expectations in asset.expectations.items():
            judged = [one for one in expectations if one.kind not in DRIFTS]
            if not judged:
                continue
            rows = plain(rows_of(asset, name, lake)(session, interval))
            met &= _validate(gx, context, source, asset.operator.output(name).table, judged, rows)
        context.build_data_docs()
    return folder / _INDEX, met


def _is_sail(session: SparkSession) -> bool:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - definitions load without an engine

    return not isinstance(session, SparkSession)


def _validate(gx, context, source, table: str, expectations: Sequence[Expectation], rows: DataFrame) -> bool:  # type: ignore[no-untyped-def]  # noqa: ANN001 - no types are exported
    if _is_sail(rows.sparkSession):
        from floodmark.engines.embedded.parity.check import check_expectations  # noqa: PLC0415 - as above

        check_expectations(expectations)
    batch = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("rows")
    suite = gx.ExpectationSuite(name=table, expectations=[expectation_of(gx, one) for one in expectations])
    definition = gx.ValidationDefinition(name=table, data=batch, suite=context.suites.add_or_update(suite))
    validation = context.validation_definitions.add_or_update(definition)
    return bool(validation.run(batch_parameters={"dataframe": rows}).success)
