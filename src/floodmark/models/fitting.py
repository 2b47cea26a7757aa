"""Fitting: an estimator of scikit-learn or Spark ML over the rows of an interval of a table becomes the next version of a model."""

from __future__ import annotations

import hashlib
import uuid
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core.errors import DefinitionError, FloodmarkError, LifecycleError, described, shown, user_code_boundary
from floodmark.core.fingerprint import digest
from floodmark.core.time import Interval, describe, from_ms, parse_instant
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.models import scikit, spark
from floodmark.models.library import Metrics
from floodmark.models.versions import Version, publish, versions
from floodmark.spec.keyed.fitted import opened
from floodmark.spec.values.schema import RETRACTION, ROW

Instant = str | date | datetime | int
_LEAST = 2
"""Rows that can be divided into those that train and those that measure."""


def fit(  # noqa: PLR0913 - settings by name
    lake: Lake,
    name: str,
    estimator: Any,
    *,
    table: str,
    features: tuple[str, ...],
    target: str,
    interval: tuple[Instant, Instant],
    valid_from: Instant | None = None,
    metrics: Metrics | None = None,
    test_share: float = 0.2,
    most_rows: int = 5_000_000,
) -> Version:
    """Fit an estimator to the rows of an interval of event time, measure it on the last of them, and publish it as the next version.

    Args:
        lake: whose table is read and whose model it becomes.
        name: of the model; its versions are the rows of ``lake/models/NAME``.
        estimator: of scikit-learn, or an estimator or ``Pipeline`` of ``pyspark.ml``; not fitted, a clone of it is. A ``random_state`` or ``seed``
            makes the fit repeatable. Spark ML fits in the session that is active, and reads the columns by their names.
        table: a log, ``logs/flights``, or an output of an operator, ``outputs/expected_delays``.
        features: columns of numbers, booleans and texts; texts need an encoder in the estimator, which is given columns by their positions.
        target: column that it learns; rows in which it or a feature is null or NaN are left out and counted in no number, but for what a
            pipeline of Spark ML learns of by ``handleInvalid="keep"``: null of a ``StringIndexer``, NaN of a ``Bucketizer``.
        interval: event times, the end exclusive. Progress of the table must have passed its end.
        valid_from: event time from which on it predicts; by default the end of the interval, so that it predicts no row it was fitted to.
        metrics: name -> function of (values, predictions); by default R² of a regression, the accuracy of a classifier. Of a pipeline of Spark ML
            values are what it would have predicted: texts behind ``IndexToString``, else the number of the class.
        test_share: of the rows, the last ones by event time: the metrics are of these, and the published estimator is fitted to the others.
        most_rows: greatest number of rows in the interval; all of them are in the memory of this process.

    Returns:
        The version. Fitting again the same rows in the same way returns the version that there is: a process that was killed is simply
        begun again.

    Raises:
        DefinitionError: DEFINITION-444 no estimator, 445 settings out of range, 446 an estimator that cannot be fitted to these columns,
            447 no estimator of Spark ML, 448 no features, or the target among them,
            449 a pipeline of Spark ML that learns another column.
        LifecycleError: LIFECYCLE-280 the interval may still change, 281 too few rows in it, 282 and 283 no such table or column,
            284 rows that are revised, 285 more rows than ``most_rows``.
        UserCodeError: USER-001, a metric raised.
        SetupError: SETUP-130 scikit-learn or skops is not installed.
        StateError: STATE-075 the estimator holds types of another package, 077 and 078 a pipeline of Spark ML that is not applied without Java,
            079 one that Spark applies in another way.
    """
    where = f"model '{name}'"
    library = spark.library(where) if spark.is_estimator(estimator) else scikit.library(where)
    library.check(estimator)
    if not name.isidentifier() or not 0 < test_share < 1 or most_rows < _LEAST:
        fix = f"A name has letters, digits and underscores; test_share lies between 0 and 1; most_rows is {_LEAST} or more."
        raise DefinitionError(
            where, "settings in range", f"{name!r}, {test_share}, {most_rows}", fix, code="DEFINITION-445"
        )
    columns = () if isinstance(features, str) else tuple(features)
    if not columns or target in columns or not all(isinstance(name, str) for name in columns):
        fix = f'Names of columns, without the target: features=("distance", "hour"), target={target!r}.'
        raise DefinitionError(where, "features to learn the target from", shown(features), fix, code="DEFINITION-448")
    features = columns
    start, end = (parse_instant(one, where) for one in interval)
    begins = end if valid_from is None else parse_instant(valid_from, where)
    rows = _rows(lake, table, Interval(start=start, end=end), (*features, target), where, most_rows)
    rows = _known(rows, *(columns - {target} for columns in library.lenient(estimator)))
    split = round(rows.num_rows * (1 - test_share))
    if not 0 < split < rows.num_rows:
        fix = "Choose a longer interval; rows whose target or features are null do not count."
        got = f"{rows.num_rows} in table '{table}'"
        raise LifecycleError(
            where, f"{_LEAST} rows or more in {Interval(start=start, end=end)}", got, fix, code="LIFECYCLE-281"
        )
    scores = metrics if metrics is not None else library.metrics(estimator)
    about = {
        "estimator": library.form(estimator),
        "table": table,
        "features": features,
        "target": target,
        "valid": begins,
    }
    about |= {
        "interval": [start, end],
        "test": test_share,
        "metrics": sorted(scores),
        "release": library.release(estimator),
    }
    definition = digest(about | {"rows": _digest(rows)})
    with exclusive(lake, "models", name, where, wait_seconds=600):
        known = versions(lake, name)
        same = next((one for one in known if one.definition == definition), None)
        if same is not None:
            return same
        try:
            if lake.is_local:
                remove(lake.fitting(name))  # of one that was killed: this one has the lock
            fitted = library.fit(estimator, rows, split, features, target, f"{lake.fitting(name)}/{uuid.uuid4().hex}")
        except FloodmarkError:
            raise
        except Exception as error:
            fix = (
                "scikit-learn is given the features by their positions, and texts need an encoder; Spark ML reads them by their names: "
                "VectorAssembler(inputCols=[...], outputCol='features'), and labelCol= is the target, or the outputCol= of a StringIndexer of a target of texts."
            )
            expected = f"an estimator that learns '{target}' from {', '.join(features)}"
            raise DefinitionError(where, expected, described(error), fix, code="DEFINITION-446") from error
        measured = dict[str, float]()
        for title, score in scores.items():
            with user_code_boundary(f"{where}, metric '{title}'"):
                measured[title] = float(score(fitted.values, fitted.predictions))
        data = fitted.data
        sha256 = hashlib.sha256(data).hexdigest()
        opened(data, sha256, name)
        return publish(
            lake,
            Version(
                name=name,
                version=len(known) + 1,
                valid_from=begins,
                interval=Interval(start=start, end=end),
                rows=rows.num_rows,
                features=features,
                metrics=measured,
                estimator=f"{library.called(estimator)}, {library.release(estimator)}",
                definition=definition,
                data=data,
                sha256=sha256,
            ),
        )


def _rows(lake: Lake, table: str, interval: Interval, columns: tuple[str, ...], where: str, most_rows: int) -> pa.Table:
    """The rows of an interval in order of event time."""
    home, _, name = table.partition("/")
    path = lake.log(name) if home == "logs" else lake.output(name)
    if home == "outputs" and not DeltaTable.is_deltatable(path):
        path = lake.read(name)
    if home not in {"logs", "outputs"} or not DeltaTable.is_deltatable(path):
        fix = "Name a log or an output that has rows: table='logs/flights', table='outputs/hourly'."
        raise LifecycleError(where, "a table of the lake", repr(table), fix, code="LIFECYCLE-282")
    whole = DeltaTable(path).to_pyarrow_dataset()
    lacking = [name for name in columns if name not in whole.schema.names]
    if lacking:
        fix = f"Columns: {', '.join(name for name in whole.schema.names if not name.startswith('_'))}."
        raise LifecycleError(where, f"columns of '{table}'", ", ".join(lacking), fix, code="LIFECYCLE-283")
    passed = pc.max(whole.to_table(columns=["_watermark"])["_watermark"]).as_py()
    if passed is None or passed < interval.end - 1:
        fix = "Choose an interval that is over, or wait until the watermark has passed its end: floodmark status"
        got = "no progress" if passed is None else f"progress up to {describe(passed)}"
        raise LifecycleError(where, f"all rows before {describe(interval.end)}", got, fix, code="LIFECYCLE-280")
    kind, time = whole.schema.field("_event_time").type, pc.field("_event_time")
    start, end = (pa.scalar(from_ms(one), kind) for one in (interval.start, interval.end))
    stamps, within = ("_event_time", "_sequence", "_kind"), (time >= start) & (time < end)
    number = whole.count_rows(filter=within)
    if number > most_rows:
        fix = "Choose a shorter interval, or most_rows=, if the memory of this process holds them: about 1 KB each with ten features."
        got = f"{number:,} in table '{table}'"
        raise LifecycleError(where, f"{most_rows:,} rows or fewer in {interval}", got, fix, code="LIFECYCLE-285")
    rows = whole.to_table(columns=list(dict.fromkeys((*columns, *stamps))), filter=within)
    rows = rows.sort_by([("_event_time", "ascending"), ("_sequence", "ascending")])
    if pc.any(pc.equal(rows["_kind"], RETRACTION)).as_py():
        fix = "Fit to a log, or to an output whose results are final: windows without allowed lateness and early panes."
        raise LifecycleError(where, "rows that are final", f"revised rows in '{table}'", fix, code="LIFECYCLE-284")
    return rows.filter(pc.equal(rows["_kind"], ROW)).select(list(columns))


def _known(rows: pa.Table, nulls: frozenset[str], nans: frozenset[str]) -> pa.Table:
    """Rows that can be learned from: without null, NaN and infinite numbers, but for columns of which these are learned."""
    for name in rows.column_names:
        if name not in nulls:
            rows = rows.filter(pc.is_valid(rows[name]))
        if name not in nans and pa.types.is_floating(rows[name].type):
            rows = rows.filter(pc.fill_null(pc.is_finite(rows[name]), fill_value=True))
    return rows


def _digest(rows: pa.Table) -> str:
    """Of the rows themselves: one row more, or other values, are another fit."""
    whole = hashlib.sha256()
    for name in rows.column_names:
        whole.update(repr(rows[name].to_pylist()).encode())
    return whole.hexdigest()
