"""Evaluates expectations over rows of Spark or Sail: the compiled ones as one aggregate, the others by Great Expectations."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import DefinitionError, closest
from floodmark.engines.frames.client import importable
from floodmark.spec.rows.conditions import NotCompiledError
from floodmark.spec.rows.criteria import compiled
from floodmark.spec.rows.criterion import EXAMPLES, SHOWN, Criterion, Judged
from floodmark.spec.rows.drift import KINDS as DRIFTS
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import PARTITION, STAMPS, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECTED = "SPARK_CONNECT_MODE_ENABLED"
"""Environment variable with which the functions of ``pyspark.sql`` make columns for Spark Connect sessions, such as Sail's."""
_one_at_a_time = threading.Lock()
"""Held while ``_CONNECTED`` is set for the whole process."""


def plain(rows: DataFrame) -> DataFrame:
    """The rows without stamp columns."""
    return rows.drop(*STAMPS, PARTITION)


@cache
def begin_import() -> None:
    """Begin to import Great Expectations in a thread, beside other work of the process: the import takes four seconds of one core.

    An evaluation waits for the import. The engine's own modules must be imported before, as two threads must not import modules that need each
    other. Calls after the first do nothing.
    """
    threading.Thread(target=great_expectations, name="floodmark-expectations").start()


def evaluate(rows: DataFrame, expectations: Sequence[Expectation]) -> list[Judged]:
    """Evaluate each expectation over the rows: those that compile as one aggregate, the others by Great Expectations.

    Only aggregates and a few examples are collected. Great Expectations is imported for an expectation that does not compile only, because
    the import takes seconds.

    Args:
        rows: a data frame of a Spark or Sail session.
        expectations: about columns of the rows.

    Raises:
        CapabilityError: CAPABILITY-037, an expectation that only Spark computes, over rows of Sail.
        DefinitionError: DEFINITION-096, an expectation or argument that Great Expectations does not have.
    """
    from floodmark.engines.frames.expressions import as_written, on_sail  # noqa: PLC0415 - definitions load without an engine
    from floodmark.engines.frames.floats import unranged  # noqa: PLC0415 - as above
    from floodmark.engines.frames.judging import judged, schema_of  # noqa: PLC0415 - as above
    from floodmark.semantics.aggregates.table import sql_of  # noqa: PLC0415 - as above

    rows = unranged(rows)
    rendering, measured, is_sail = as_written, sql_of, on_sail(rows)
    if is_sail:
        from floodmark.engines.embedded.parity.aggregates import sail_aggregate  # noqa: PLC0415 - as above
        from floodmark.engines.embedded.parity.check import sail_sql  # noqa: PLC0415 - as above

        rendering, measured = sail_sql, sail_aggregate
    schema = schema_of(rows)
    criteria = _criteria(expectations, schema, on_sail=is_sail)
    others = [expectation for expectation in expectations if expectation.name not in criteria]
    results = judged(rows, schema, tuple(criteria.values()), rendering, measured) if criteria else []
    results += _by_great_expectations(rows, others, on_sail=is_sail) if others else []
    by_name = {result[0].name: result for result in results}
    return [by_name[expectation.name] for expectation in expectations]


def uncompiled(expectations: Sequence[Expectation], schema: Schema) -> bool:
    """Whether an evaluation imports Great Expectations, for an expectation that does not compile."""
    for expectation in expectations:
        try:
            compiled(expectation, schema)
        except NotCompiledError:
            if expectation.kind not in DRIFTS:
                return True
    return False


def _criteria(expectations: Sequence[Expectation], schema: Schema, *, on_sail: bool) -> dict[str, Criterion]:
    """Name -> criterion, of the expectations that compile for the engine."""
    from floodmark.engines.embedded.parity.check import judged_otherwise  # noqa: PLC0415 - definitions load without an engine

    criteria = {}
    for expectation in expectations:
        with suppress(NotCompiledError):
            criterion = compiled(expectation, schema)
            if not (on_sail and judged_otherwise(criterion, schema)):
                criteria[expectation.name] = criterion
    return criteria


def _by_great_expectations(rows: DataFrame, expectations: Sequence[Expectation], *, on_sail: bool) -> list[Judged]:
    if not on_sail:
        return _validated(rows, expectations)
    from floodmark.engines.embedded.parity.check import check_expectations  # noqa: PLC0415 - definitions load without an engine

    check_expectations(expectations)
    with as_session(rows.sparkSession):
        return _validated(rows, expectations)


@contextmanager
def as_session(session: SparkSession) -> Iterator[None]:
    """Make ``session``, of Spark Connect, the session that Great Expectations finds and makes columns for."""
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


def _validated(rows: DataFrame, expectations: Sequence[Expectation]) -> list[Judged]:
    gx = great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("spark", persist=False)  # with True, the default, nothing ever unpersists
    batch = (
        source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    )
    suite = gx.ExpectationSuite(name="expectations", expectations=[expectation_of(gx, one) for one in expectations])
    validation = batch.validate(suite, result_format="BASIC")
    by_name: dict[str, Any] = {
        one.expectation_config.meta["check"]: one
        for one in validation.results
        if one.expectation_config and one.expectation_config.meta
    }
    return [(one, bool(by_name[one.name].success), _numbers(by_name[one.name])) for one in expectations]


def great_expectations() -> Any:
    """Import the package, as late as possible; the import loads ``pyspark.sql.connect``."""
    with importable():
        return import_module("great_expectations")


def expectation_of(gx: Any, expectation: Expectation) -> Any:
    """The expectation as an object of Great Expectations.

    Raises:
        DefinitionError: DEFINITION-096, it has no such expectation or argument.
    """
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
    """{name: value} of a result: values that Dagster can plot, examples of unexpected values, and the message of an exception if any."""
    numbers: dict[str, Any] = {}
    for name, value in result.result.items():
        if isinstance(value, bool | int | float | str):
            numbers[name] = value
        elif name == "observed_value":
            numbers[name] = str(value)
    if examples := result.result.get("partial_unexpected_list"):
        numbers[EXAMPLES] = ", ".join(str(value) for value in examples[:SHOWN])
    raised = result.exception_info or {}
    message = raised.get("exception_message") or next(
        (one["exception_message"] for one in raised.values() if isinstance(one, dict) and one.get("exception_message")),
        None,
    )
    return numbers | ({"raised": str(message)} if message else {})
