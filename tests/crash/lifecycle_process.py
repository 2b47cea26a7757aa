"""An action on streams, in a process of its own that a test may kill: python lifecycle_process.py savepoint|rollback|upgrade|fork|move|rescale|regroup LAKE [...]."""

from __future__ import annotations

import sys

from operator_process import Event

from floodmark import Stream, Tumbling, count, max, operator, sum
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork, move
from floodmark.lake.restore.rollback import roll_back


def totals(events: Stream[Event]) -> Stream:
    """Refires, drops and has a late output."""
    windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


def largest(totals: Stream) -> Stream:
    """Reads it, with state of its own."""
    return totals.window(Tumbling("30 minutes")).aggregate(most=max("total"))


def wider(events: Stream[Event]) -> Stream:
    """The first one with a column more."""
    return totals(events).with_columns(double="total * 2")


TOTALS, WIDER = operator(totals), operator(wider, name="totals")
LARGEST = operator(largest, inputs={"totals": TOTALS})


def main(action: str, root: str, *names: str) -> None:
    """Do it."""
    lake = Lake(root)
    match action:
        case "savepoint":
            savepoints.create("totals", lake)
        case "rollback":
            roll_back(lake, savepoints.find(lake, names[0]))
        case "fork":
            fork(lake, savepoints.find(lake, names[0]), names[1])
        case "move":
            move(lake, "largest", names[0])
        case "upgrade":
            upgrade(WIDER, lake)
        case "rescale":
            from borrowed import borrow

            from floodmark.engines.spark.session.builder import spark_session
            from floodmark.engines.spark.state.rescale import rescale

            borrow()
            rescale(spark_session(app="rescale"), lake, "totals", int(names[0]))
        case "regroup" if names[1] == "spark":
            from borrowed import borrow

            from floodmark.engines.rescaling import regroup
            from floodmark.engines.spark.session.builder import spark_session

            borrow()
            spark = spark_session(app="regroup")
            regroup(TOTALS, lake, int(names[0]), lambda work: work(spark), lambda: spark)
        case "regroup":
            from floodmark.control.processes.engine import computing
            from floodmark.spec.workspace import Settings

            computing(Settings(memory=300), engine="embedded").regroup(TOTALS, lake, int(names[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
