"""Blocking expectations of an asset, evaluated on the workspace's engine over the rows that a version of the operator has written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from floodmark.control.processes.engine import Computing
from floodmark.control.streams.verification import Check
from floodmark.engines.frames.results import latest
from floodmark.engines.outcome import described
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.observe.expectations import evaluate, plain
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.rows.criterion import Judged
from floodmark.spec.rows.drift import KINDS as DRIFTS
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import BOUNDED, MARKER, ROW, first_sequence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def blocking(asset: OperatorAsset) -> dict[str, list[Expectation]]:
    """Output -> its blocking expectations, for outputs that have any; without those of drift, which compare asset partitions."""
    by_output = {
        name: [one for one in wanted if one.blocking and one.kind not in DRIFTS]
        for name, wanted in asset.expectations.items()
    }
    return {name: wanted for name, wanted in by_output.items() if wanted}


def expected(asset: OperatorAsset, computing: Computing, lake: Lake, *, anew: bool) -> Iterable[Check]:
    """The check of the rows written since a savepoint, for a verification; empty without blocking expectations.

    Args:
        asset: the operator's asset.
        computing: the engine that evaluates expectations.
        lake: lake of the outputs.
        anew: True if all rows were written since the savepoint, as by a rebuild.
    """

    def look(savepoint: Savepoint) -> Iterator[str]:
        return unmet(asset, computing, lake, -1 if anew else savepoint.manifest.batch)

    return [look] if blocking(asset) else []


def unmet(asset: OperatorAsset, computing: Computing, lake: Lake, after: int) -> Iterator[str]:
    """Descriptions of the blocking expectations that rows written after a micro-batch do not meet, with numbers.

    Args:
        asset: the operator's asset.
        computing: the engine that evaluates expectations.
        lake: lake of the outputs.
        after: number of the micro-batch; -1 for all rows.
    """
    for name, wanted in blocking(asset).items():
        for expectation, passed, numbers in computing.with_session(partial(_judged, asset, name, wanted, lake, after)):
            if not passed:
                table = asset.operator.output(name).table
                yield f"{expectation.name} of '{table}' is not met: {described(numbers)}"


def _judged(
    asset: OperatorAsset, name: str, wanted: list[Expectation], lake: Lake, after: int, session: SparkSession
) -> list[Judged]:
    output = asset.operator.output(name)
    first = first_sequence(after + 1) if after >= 0 else 0
    table = session.read.format("delta").load(lake.output(output.table))
    rows = table.filter(
        f"_kind <> {MARKER} AND _sequence >= {first} AND _sequence < {BOUNDED}"
    )  # without rows of bounded runs
    if output.current is not None:  # computed here, as the table of last values lags
        rows = latest(rows, output)
    return evaluate(plain(rows.filter(f"_kind = {ROW}")), wanted)
