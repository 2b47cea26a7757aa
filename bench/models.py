"""A model of each airport and carrier over the flights of 2013, in the order in which they became known, beside the mean so far: errors, seconds, memory.

    python bench/models.py [--days 366]

The stream stops after each fifth of the files; a bounded run over all of them must predict the same to the last bit.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from river import linear_model, optim, preprocessing

from demo.inbox import write_inbox
from demo.tables import without_stamps
from floodmark import BoundedOutOfOrderness, Files, Source, Stream, operator
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import outputs
from operators.flights import Flight

MODEL = preprocessing.StandardScaler() | linear_model.LinearRegression(
    optimizer=optim.SGD(0.001), intercept_lr=optim.schedulers.Constant(0.01)
)

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


def main() -> None:
    """Land the files, run both ways, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=366)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        write_inbox(Path(folder, "inbox"), days=options.days)
        source = Source(
            "flights",
            contract=Flight,
            connector=Files(f"{folder}/inbox/flights", min_age="0 s"),
            watermark=BoundedOutOfOrderness("6 hours"),
            files_per_commit=max(1, options.days // 5),
        )
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


def _rows(lake: Lake) -> pa.Table:
    rows = outputs(lake, expected_delays)[""]
    return rows.filter(pc.equal(rows["_kind"], ROW))


def _values(rows: pa.Table) -> pa.Table:
    plain = without_stamps(rows)
    return plain.sort_by([(name, "ascending") for name in plain.column_names])


if __name__ == "__main__":
    main()
