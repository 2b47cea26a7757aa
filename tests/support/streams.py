"""Streams over keyed numbers (``events``), one for each kind of state: sums that are revised, code with timers, a join, sessions, keys seen, the clock."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from events import Event

from floodmark import (
    Contract,
    Expectation,
    ListState,
    MapState,
    Operator,
    ProcessFunction,
    Session,
    Stream,
    Timer,
    Tumbling,
    ValueState,
    begin,
    count,
    operator,
    operator_asset,
    skip_to_last,
    sum,
)
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import MARKER, ROW
from floodmark.testing.lakes import outputs
from floodmark.testing.log import Log
from floodmark.testing.runs import final


def _windowed(events: Stream[Event]) -> Stream:
    """Results that are revised, and rows that are too late."""
    keyed = events.filter("value % 7 <> 0").key_by("key")
    windowed = keyed.window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


def _plain(events: Stream[Event]) -> Stream:
    """No state."""
    return events.filter("value % 3 = 0").with_columns(double="value * 2")


def _clocked(events: Stream[Event]) -> Stream:
    """Seconds of processing time."""
    return events.key_by("key").window(Tumbling("1 second"), time="processing").aggregate(n=count(), total=sum("value"))


class Watched(Contract):
    """What was seen of a key until it was quiet for a while."""

    quiet_at: int
    seen: int
    values: list[int]
    total: int


def _watching() -> ProcessFunction:
    """Several kinds of state and a timer. Defined in here, the class travels to workers by value."""

    class Watching(ProcessFunction):
        seen, values, totals = ValueState(int), ListState(int), MapState(int, int, ttl="2 hours")
        quiet = Timer()

        def on_element(self, row: Any, ctx: Any) -> None:
            self.seen.update(self.seen.get(0) + 1)
            self.values.update([*self.values.get()[-4:], row["value"]])
            self.totals.put(ctx.timestamp, row["value"])
            self.quiet.delete()
            self.quiet.set(ctx.timestamp + 12 * 60_000)

        def on_timer(self, timer: str, ctx: Any) -> Any:
            total = 0
            for value in self.totals.values():
                total += value
            yield {"quiet_at": ctx.timestamp, "seen": self.seen.get(), "values": self.values.get(), "total": total}

    return Watching()


def _watched(events: Stream[Event]) -> Stream:
    """Code with state and timers."""
    return events.key_by("key").process(_watching(), schema=Watched)


def _paired(events: Stream[Event]) -> Stream:
    """Each row with those of the next six minutes, and rows without any."""
    keyed = events.key_by("key")
    return keyed.interval_join(keyed, "1 minute", "6 minutes", kind="left", prefix="next_")


def _matched(events: Stream[Event]) -> Stream:
    """Each row with the greater ones of its key half an hour around it, and rows without any: a row is taken back when the first of them comes."""
    keyed = events.filter("value % 3 > 0").key_by("key")
    return keyed.regular_join(
        keyed, kind="left", on="next_value BETWEEN value + 1 AND value + 6", ttl="30 minutes", prefix="next_"
    )


def _visits(events: Stream[Event]) -> Stream:
    """Sessions that late rows merge."""
    keyed = events.filter("value % 5 <> 0").key_by("key")
    return keyed.window(Session("4 minutes"), allowed_lateness="15 minutes").aggregate(n=count(), total=sum("value"))


def _once(events: Stream[Event]) -> Stream:
    """The first row of each remainder within an hour."""
    return events.with_columns(rest="value % 50").key_by("rest").deduplicate("1 hour")


def _judged(events: Stream[Event]) -> Stream:
    """Rows of which some do not meet an expectation."""
    return events.filter("value % 3 = 0").with_columns(double="value * 2")


def _patterned(events: Stream[Event]) -> Stream:
    """Matches with conditions over what has matched, and partial matches that time out."""
    low = (
        begin("low")
        .where("value % 7 = 1")
        .followed_by("high")
        .where("value > last(low.value) and value % 2 = 0")
        .times(2)
    )
    ends = (
        low.followed_by("end").where(lambda row, match: row["value"] > match["high"][-1]["value"]).within("40 minutes")
    )
    matches = events.key_by("key").pattern(ends, skip=skip_to_last("high"), late="side_output")
    measures = {"low": "low.value", "highs": "collect(high.value)", "total": "sum(value)"}
    return matches.select(timed_out={"low": "low.value", "rows": "count()"}, **measures)


SMALL = Expectation("column_values_to_be_between", column="double", max_value=400, on_fail="quarantine")
EVEN = Expectation("column_values_to_not_be_in_set", column="double", value_set=[0], on_fail="warn")
WINDOWED: Operator = operator(_windowed, name="windowed")
PLAIN: Operator = operator(_plain, name="plain")
CLOCKED: Operator = operator(_clocked, name="clocked")
WATCHED: Operator = operator(_watched, name="watched")
PAIRED: Operator = operator(_paired, name="paired")
MATCHED: Operator = operator(_matched, name="matched")
VISITS: Operator = operator(_visits, name="visits")
ONCE: Operator = operator(_once, name="once")
PATTERNED: Operator = operator(_patterned, name="patterned")
JUDGED: Operator = operator_asset(operator(_judged, name="judged"), expectations=[SMALL, EVEN]).operator

STREAMS = {
    one.name: one for one in (WINDOWED, WATCHED, PAIRED, MATCHED, VISITS, ONCE, PATTERNED, CLOCKED, PLAIN, JUDGED)
}


def check(lake: Lake, code: Operator, log: Log) -> None:
    """Every output has the rows of one run over all of the log."""
    expected = MemoryRun(code).batch({code.inputs[0].name: log.table()})
    got = outputs(lake, code)
    assert final([got[code.outputs[0].name]])
    for name, table in expected.items():
        assert final([got[name]]) == final([table]), name
    for output in code.outputs:
        if output.current is not None:
            last = DeltaTable(lake.output(output.current.table)).to_pyarrow_table()
            assert final([last]) == _last(output, expected[output.name]), output.current.table


def _last(output: Output, table: pa.Table) -> list[dict[str, Any]]:
    """The last value of each key of a changelog, or the rows that are not retracted."""
    if not output.keys:
        return final([table])
    values = table.filter(pc.not_equal(table["_kind"], MARKER)).sort_by(
        [("_sequence", "ascending"), ("_kind", "ascending")]
    )
    by_key = {tuple(row[key] for key in output.keys): row for row in values.to_pylist()}
    rows = [row for row in by_key.values() if row["_kind"] == ROW]
    return final([pa.Table.from_pylist(rows, schema=table.schema)])
