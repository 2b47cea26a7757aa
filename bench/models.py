"""A model of each airport and carrier over the flights of 2013, in the order in which they became known, beside the mean so far: errors, seconds, memory.

    python bench/models.py [--days 366] [--rollout]

The stream stops after each fifth of the files; a bounded run over all of them must predict the same to the last bit. With ``--rollout`` the stream
predicts the mean so far, a model of the median runs beside it over two fifths of the files, and takes over if it errs less.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from river import dummy, linear_model, optim, preprocessing, stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo.inbox import write_inbox
from demo.tables import without_stamps
from floodmark import BoundedOutOfOrderness, Files, ModelState, Operator, PromoteWhen, Source, Stream, operator
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints, switch
from floodmark.lake.restore.fork import fork
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.guardrails import Evidence, judge
from floodmark.lifecycle.plan import plan
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import outputs
from operators.flights import Flight

MODEL = preprocessing.StandardScaler() | linear_model.LinearRegression(
    optimizer=optim.SGD(0.001), intercept_lr=optim.schedulers.Constant(0.01)
)

MEDIAN = preprocessing.StandardScaler() | linear_model.LinearRegression(
    optimizer=optim.SGD(0.01), intercept_lr=optim.schedulers.Constant(0.05), loss=optim.losses.Quantile(0.5)
)
"""Learns the median, as the error that a rollout judges is the absolute one."""

ERRORS = """
WITH learned AS (SELECT *, avg(delay) OVER (PARTITION BY origin, carrier ORDER BY _sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS mean FROM rows)
SELECT quarter(scheduled), count(*), avg(abs(delay - prediction)), avg(abs(delay - mean)), sqrt(avg((delay - prediction) ** 2)), sqrt(avg((delay - mean) ** 2))
FROM learned WHERE learned > 0 GROUP BY ROLLUP (quarter(scheduled)) ORDER BY ALL
"""


@operator
def expected_delays(flights: Stream[Flight]) -> Stream:
    """The delay that is expected of each flight, before it was known."""
    known = flights.filter("dep_delay IS NOT NULL").with_columns(
        delay="CAST(dep_delay AS double)", hour="hour(scheduled)", weekday="dayofweek(scheduled)"
    )
    features = ("hour", "weekday", "distance")
    return known.key_by("origin", "carrier").learn(MODEL, features=features, target="delay")


def scored(model: object) -> Operator:
    """The delay that a model of an airport and carrier expects, and its error."""

    def expected(flights: Stream[Flight]) -> Stream:
        known = flights.filter("dep_delay IS NOT NULL").with_columns(
            delay="CAST(dep_delay AS double)", hour="hour(scheduled)", weekday="dayofweek(scheduled)"
        )
        features = ("hour", "weekday", "distance")
        predicted = known.key_by("origin", "carrier").learn(model, features=features, target="delay")
        return predicted.with_columns(error="abs(delay - prediction)")

    expected.__doc__ = scored.__doc__
    return operator(expected, name="expected")


def rolled_out(days: int) -> None:
    """Two models as arms from the first fifth of the files on, judged over two fifths; the rule's winner goes on to the end."""
    rule = PromoteWhen(match=0, means={"error": 0.95}, rows=min(1000, 50 * days))
    mean = scored(ModelState(dummy.StatisticRegressor(stats.Mean())))
    line = scored(ModelState(MEDIAN, version=2, migrate=lambda _: MEDIAN.clone()))
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        source = _source(folder, days)
        sail, lake = Sail(600), Lake(f"{folder}/lake")

        write_inbox(Path(folder, "all"), days=days)
        files = sorted(Path(folder, "all", "flights").iterdir())
        Path(folder, "inbox", "flights").mkdir(parents=True)

        def lands(first: int, last: int) -> None:
            """Fifths of the files."""
            for path in files[len(files) * first // 5 : len(files) * last // 5]:
                path.rename(Path(folder, "inbox", "flights", path.name))
            land(lambda: sail, source, lake, until_caught_up=True)

        lands(0, 1)
        run_unbounded(sail, mean, lake, until_caught_up=True)
        origin = savepoints.create(mean.name, lake, why="rollout")
        arms = [_arm(lake, name, code, origin) for name, code in (("mean", mean), ("line", line))]
        lands(1, 3)
        for arm, code in zip(arms, (mean, line), strict=True):
            run_unbounded(sail, code, Lake.forked(arm.root) or lake, until_caught_up=True)
        about = {"who": "bench", "why": "", "began_at": origin.manifest.at, "since": origin.manifest.watermark}
        made = Experiment(
            name="models",
            operator=mean.name,
            savepoint=origin.manifest.id,
            arms=tuple(arms),
            state="running",
            promote=rule,
            candidate="line",
            **about,
        )
        experiments.keep(lake, made)
        compared = compare_arms(lake, made, line, How(grain=("origin", "dest", "carrier", "flight", "_event_time")))
        evidence = {"state": "has read everything", "runs": True, "given_up": False, "behind": 0, "now": made.began_at}
        judgement = judge(rule, Evidence(comparisons=compared["line"], **evidence))
        for guardrail in judgement.guardrails:
            print(f"{guardrail.name}: wants {guardrail.wants}, sees {guardrail.sees}: {guardrail.verdict}")
        assert judgement.holds, "the mean stays"
        with switch.stopped(lake, [mean.name]), switch.stopped(Lake(arms[1].root), [mean.name]):
            switch.become(lake, mean.name, Lake(arms[1].root), again="bench", back=origin.manifest.id, why="promotion")
        lands(3, 5)
        run_unbounded(sail, line, lake, until_caught_up=True)
        whole = Lake(f"{folder}/mean", logs=lake.root)
        run_bounded(sail, mean, whole)
        sail.close()
        query = (
            f"SELECT quarter(scheduled) AS q, count(*), avg(error) FROM rows WHERE _kind = {ROW} GROUP BY q ORDER BY q"
        )
        taken, stayed = ([*_quarters(outputs(at, code)[""], query)] for at, code in ((lake, line), (whole, mean)))
        for (quarter, number, error), (*_, before) in zip(taken, stayed, strict=True):
            print(
                f"quarter {quarter}: {number:,} flights, error {error:.2f} minutes; had the mean stayed, {before:.2f}"
            )


def _quarters(rows: pa.Table, query: str) -> list[tuple[int, int, float]]:
    return duckdb.from_arrow(rows).query("rows", query).fetchall()


def _arm(lake: Lake, name: str, code: Operator, origin: savepoints.Savepoint) -> Arm:
    there = fork(lake, origin, experiments.root_of(lake, "models", name))
    if plan(origin.manifest.deployed, code).changes:
        upgrade(code, there)
    return Arm(name=name, code=code.version, package="", version=code.version, root=there.root, differs=())


def main() -> None:
    """Land the files, run both ways, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=366)
    parser.add_argument("--rollout", action="store_true")
    options = parser.parse_args()
    if options.rollout:
        rolled_out(options.days)
        return
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        write_inbox(Path(folder, "inbox"), days=options.days)
        source = _source(folder, options.days)
        sail, stream, bounded = Sail(600), Lake(f"{folder}/stream"), Lake(f"{folder}/bounded")
        for lake in (stream, bounded):
            land(lambda: sail, source, lake, until_caught_up=True)
        began, used = time.monotonic(), time.process_time()
        run_unbounded(sail, expected_delays, stream, until_caught_up=True, files_per_batch=1)
        seconds, cpu = time.monotonic() - began, time.process_time() - used
        run_bounded(sail, expected_delays, bounded)
        rows, others = (_rows(lake) for lake in (stream, bounded))
        assert _values(rows) == _values(others)
        for quarter, number, error, mean, squared, mean_squared in duckdb.sql(ERRORS).fetchall():
            when = f"quarter {quarter}" if quarter else "2013"
            print(
                f"{when}: {number:,} flights, error {error:.2f} minutes (mean so far {mean:.2f}), squared {squared:.2f} ({mean_squared:.2f})"
            )
    print(
        f"{rows.num_rows:,} flights: {seconds:,.1f} s, {rows.num_rows / seconds:,.0f} rows/s, {cpu:,.1f} s of CPU of this process, "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB; the bounded run predicts the same"
    )


def _source(folder: str, days: int) -> Source:
    return Source(
        "flights",
        contract=Flight,
        connector=Files(f"{folder}/inbox/flights", min_age="0 s"),
        watermark=BoundedOutOfOrderness("6 hours"),
        files_per_commit=max(1, days // 5),
    )


def _rows(lake: Lake) -> pa.Table:
    rows = outputs(lake, expected_delays)[""]
    return rows.filter(pc.equal(rows["_kind"], ROW))


def _values(rows: pa.Table) -> pa.Table:
    plain = without_stamps(rows)
    return plain.sort_by([(name, "ascending") for name in plain.column_names])


if __name__ == "__main__":
    main()
