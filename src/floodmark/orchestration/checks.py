"""Expectations as Dagster asset checks: Great Expectations over the rows of each asset partition, on the engine of the workspace."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import dagster as dg

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import Interval
from floodmark.orchestration import partitions
from floodmark.orchestration.assets import landed_last, output_key, source_key
from floodmark.orchestration.session import Place
from floodmark.orchestration.work import failing, interruptible
from floodmark.spec.asset import OperatorAsset, SourceAsset
from floodmark.spec.expectation import Expectation
from floodmark.spec.partitions import predicate
from floodmark.spec.schema import PARTITION, ROW, STAMPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APART = 31
"""Up to so many asset partitions of one run are checked one by one; more are checked together, as one set of rows."""
_SHOWN = 10

_CONNECTED = "SPARK_CONNECT_MODE_ENABLED"
"""Of the environment: with it, the functions of ``pyspark.sql`` make columns for sessions of Spark Connect, as those of Sail are."""
_one_at_a_time = threading.Lock()
"""Held while ``_CONNECTED`` is set for the whole process."""

Rows = Callable[["SparkSession", Interval], "DataFrame"]


Judged = tuple[Expectation, bool, dict[str, Any]]
"""An expectation, whether rows meet it, and its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One asset and what is expected of it.

    Args:
        key: of the asset.
        rows: of an interval of event time, as people see them.
        expectations: of them.
    """

    key: dg.AssetKey
    rows: Rows
    expectations: tuple[Expectation, ...]


def source_checks(asset: SourceAsset, place: Place) -> dg.AssetChecksDefinition | None:
    """Checks of what the newest landing brought."""
    if not asset.expectations:
        return None
    name = asset.source.name

    def rows(session: "SparkSession", _: Interval) -> "DataFrame":
        low, high = landed_last(place, name)
        log = session.read.format("delta").load(place.lake.log(name))
        return plain(log.filter(f"_kind = {ROW} AND _sequence BETWEEN {low} AND {high}"))

    checked = Checked(key=source_key(asset), rows=rows, expectations=asset.expectations)
    return _definition(f"check_{name}", [checked], None, place, f"source_{name}")


def operator_checks(asset: OperatorAsset, place: Place) -> dg.AssetChecksDefinition | None:
    """Checks of an operator's outputs, per asset partition."""
    if not asset.expectations:
        return None
    operator = asset.operator
    checked = [
        Checked(key=output_key(operator.output(name)), rows=_output_rows(asset, name, place), expectations=some)
        for name, some in asset.expectations.items()
    ]
    cut = partitions.definition(asset.partitions) if asset.partitions else None
    return _definition(f"check_{operator.name}", checked, cut, place, f"operator_{operator.name}")


def _output_rows(asset: OperatorAsset, name: str, place: Place) -> Rows:
    output = asset.operator.output(name)
    path = place.lake.output((output.current or output).table)

    def rows(session: "SparkSession", interval: Interval) -> "DataFrame":
        table = session.read.format("delta").load(path).filter(f"_kind = {ROW}")
        return plain(table.filter(predicate(asset.partitions, interval)) if asset.partitions else table)

    return rows


def plain(rows: "DataFrame") -> "DataFrame":
    """Without stamps."""
    return rows.drop(*STAMPS, PARTITION)


def _definition(
    name: str, checked: Sequence[Checked], cut: partitions.Definition | None, place: Place, pool: str
) -> dg.AssetChecksDefinition:
    specs = {
        (one.key, expectation.name): dg.AssetCheckSpec(
            expectation.name,
            asset=one.key,
            description=f"{expectation.kind}({', '.join(f'{k}={v!r}' for k, v in expectation.values.items())})",
            blocking=expectation.blocking,
            partitions_def=cut,
        )
        for one in checked
        for expectation in one.expectations
    }

    @dg.multi_asset_check(specs=list(specs.values()), name=name, pool=pool)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[Any]:
        computing = place.computing
        for one in checked:
            for key, interval in _pieces(context, one.key, cut):
                context.log.info(f"{one.key.to_user_string()}, {key or interval}")
                with failing():
                    work = partial(computing.with_session, partial(_evaluated, one, interval))
                    results = interruptible(work, computing.cancel)
                for expectation, passed, numbers in results:
                    yield dg.AssetCheckEvaluation(
                        asset_key=one.key,
                        check_name=expectation.name,
                        passed=passed,
                        metadata=numbers,
                        severity=dg.AssetCheckSeverity.ERROR if expectation.blocking else dg.AssetCheckSeverity.WARN,
                        blocking=expectation.blocking,
                        partition=key,
                    )
        for spec in specs.values():
            yield dg.Output(None, output_name=spec.get_python_identifier())

    return check_step


def _pieces(
    context: dg.AssetCheckExecutionContext, asset: dg.AssetKey, cut: partitions.Definition | None
) -> list[tuple[str | None, Interval]]:
    """The asset partitions of the run that are computed, each with its event time; all of time for a run without partitions."""
    tags = context.run.tags
    low = tags.get("dagster/asset_partition_range_start", tags.get("dagster/partition"))
    high = tags.get("dagster/asset_partition_range_end", low)
    if cut is None or low is None or high is None:
        return [(None, Interval())]
    keys = cut.get_partition_keys_in_range(dg.PartitionKeyRange(low, high))
    computed = context.instance.get_materialized_partitions(asset)
    keys = [key for key in keys if key in computed] or list(keys)  # the command line may have computed them
    found: list[tuple[str | None, Interval]] = [
        (key, partitions.interval_of(cut.time_window_for_partition_key(key))) for key in keys
    ]
    if len(found) <= _APART:
        return found
    return [(None, Interval(start=found[0][1].start, end=found[-1][1].end))]


def _evaluated(checked: Checked, interval: Interval, session: "SparkSession") -> list[Judged]:
    return evaluate(checked.rows(session, interval), checked.expectations)


def evaluate(rows: "DataFrame", expectations: Sequence[Expectation]) -> list[Judged]:
    """Each expectation with whether the rows meet it, and its numbers.

    Nothing is collected but aggregates and a few examples; Great Expectations is imported here, as that takes seconds.

    Args:
        rows: of a session of Spark, or of Sail.
        expectations: of their columns.

    Raises:
        CapabilityError: CAPABILITY-037, rows of Sail and an expectation that only Spark computes.
        DefinitionError: DEFINITION-096, an expectation or argument that Great Expectations does not know.
    """
    from floodmark.engines.frames.expressions import connected  # noqa: PLC0415 - definitions load without an engine
    from floodmark.engines.frames.floats import unranged  # noqa: PLC0415 - as above

    rows = unranged(rows)
    if not connected(rows):
        return _validated(rows, expectations)
    from floodmark.engines.embedded.parity.check import check_expectations  # noqa: PLC0415 - as above

    check_expectations(expectations)
    with _as_session(rows.sparkSession):
        return _validated(rows, expectations)


@contextmanager
def _as_session(session: "SparkSession") -> Iterator[None]:
    """Great Expectations finds a session of Spark Connect, and makes columns for it."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - definitions load without an engine

    active = SparkSession._active_session  # noqa: SLF001 - only a new session can be made active in public
    with _one_at_a_time:
        before, os.environ[_CONNECTED] = getattr(active, "session", None), "1"
        active.session = session
        try:
            yield
        finally:
            active.session = before
            del os.environ[_CONNECTED]


def _validated(rows: "DataFrame", expectations: Sequence[Expectation]) -> list[Judged]:
    gx = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("spark", persist=False)  # with True, the default, nothing ever unpersists
    batch = (
        source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    )
    suite = gx.ExpectationSuite(name="expectations", expectations=[_expectation(gx, one) for one in expectations])
    found = batch.validate(suite, result_format="BASIC")
    by_name: dict[str, Any] = {
        one.expectation_config.meta["check"]: one
        for one in found.results
        if one.expectation_config and one.expectation_config.meta
    }
    return [(one, bool(by_name[one.name].success), _numbers(by_name[one.name])) for one in expectations]


def _great_expectations() -> Any:
    """The package, imported as late as possible.

    It imports ``pyspark.sql.connect``, which takes the process of a Dagster run, whose main module has no file, for a doctest, and
    ends it (``check_dependencies`` of PySpark 4.2); for the time of the import the main module gets one.
    """
    main = sys.modules["__main__"]
    nameless = main.__spec__ is None and not hasattr(main, "__file__")
    if nameless:
        main.__file__ = sys.executable
    try:
        return import_module("great_expectations")
    finally:
        if nameless:
            del main.__file__


def _expectation(gx: Any, expectation: Expectation) -> Any:
    name = "Expect" + "".join(part.capitalize() for part in expectation.kind.split("_"))
    known = [n for n in dir(gx.expectations) if n.startswith("Expect") and n != "Expectation"]
    names = {n.lower(): n for n in known}
    where = f"expectation '{expectation.name}'"
    if name.lower() not in names:
        fix = closest(name, known) + "See https://greatexpectations.io/expectations"
        raise DefinitionError(
            where, "an expectation of Great Expectations", expectation.kind, fix, code="DEFINITION-096"
        )
    try:
        return getattr(gx.expectations, names[name.lower()])(meta={"check": expectation.name}, **expectation.values)
    except (TypeError, ValueError) as error:
        fix = f"See https://greatexpectations.io/expectations/expect_{expectation.kind}"
        raise DefinitionError(where, "arguments it takes", str(error), fix, code="DEFINITION-096") from error


def _numbers(result: Any) -> dict[str, Any]:
    """The numbers of a result that Dagster can plot, and examples of what was unexpected."""
    found: dict[str, Any] = {}
    for name, value in result.result.items():
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif name == "observed_value":
            found[name] = str(value)
    if examples := result.result.get("partial_unexpected_list"):
        found["unexpected, for example"] = ", ".join(str(value) for value in examples[:_SHOWN])
    raised = result.exception_info or {}
    message = raised.get("exception_message") or next(
        (one["exception_message"] for one in raised.values() if isinstance(one, dict) and one.get("exception_message")),
        None,
    )
    return found | ({"raised": str(message)} if message else {})
