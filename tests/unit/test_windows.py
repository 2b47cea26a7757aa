"""Which windows a row is in: row by row, in columns and in SQL the same, from the year 1 to the year 9999."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from hypothesis import example, given, settings
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError, ExecutionError, UserCodeError
from floodmark.core.time import END, NEVER, Interval, from_ms, to_ms, zone
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lake.table.files import statistics
from floodmark.semantics.time.assignment import assigner, classify_lateness, first_needed, kind_of
from floodmark.semantics.windows import extent
from floodmark.semantics.windows.cumulative import Cumulative
from floodmark.semantics.windows.days import Days, ListedDays
from floodmark.semantics.windows.grid import Grid
from floodmark.spec.values.schema import BOUNDED, SEQUENCES, first_sequence
from floodmark.spec.windowing.partitions import Daily, Hourly
from floodmark.testing import IN_MEMORY
from floodmark.testing.log import Log

DAY = 86_400_000
ZONES = ["UTC", "America/New_York", "Africa/Monrovia", "Europe/Amsterdam", "Asia/Kolkata", "Asia/Tokyo", "Pacific/Apia"]
ZONES += ["America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Kiritimati", "Africa/Casablanca", "America/St_Johns"]
EDGES = [NEVER, NEVER + 1, -1, 0, 1, END - 1, END]
times = st.one_of(
    st.integers(NEVER, END), st.integers(-10, 10), st.sampled_from(EDGES), st.integers(END - 3 * DAY, END)
)
grids = st.builds(Grid, st.integers(1, 60), st.integers(1, 60), st.integers(-90, 90)) | st.builds(
    Grid, st.sampled_from([DAY, 7 * DAY, 90 * 60_000]), st.sampled_from([DAY, 60_000 * 45]), st.integers(-DAY, DAY)
)

grids |= st.builds(
    lambda step, times, offset: Cumulative(step * times, step, offset),
    st.integers(1, 60) | st.sampled_from([60_000 * 45, DAY]),
    st.integers(1, 8),
    st.integers(-90, 90) | st.integers(-DAY, DAY),
)


def by_columns(kind, time: int) -> list[tuple[int, int]]:
    slices = kind.slices(np.array([time], dtype=np.int64))
    _, ends = kind.expand(slices, kind.first_end(slices), NEVER - 400 * DAY, END + 400 * DAY)
    return [extent.within(kind.start(int(end)), int(end)) for end in ends]


@pytest.fixture(scope="module")
def sql():
    """Spark SQL over integers, by DuckDB."""
    connection = duckdb.connect()
    connection.execute("CREATE MACRO pmod(a, b) AS ((a % b) + b) % b")
    connection.execute("CREATE MACRO timestamp_micros(us) AS make_timestamptz(us)")
    connection.execute("SET TimeZone = 'UTC'")

    def answer(text: str):
        return connection.execute(f"SELECT {sqlglot.transpile(text, read='spark', write='duckdb')[0]}").fetchall()[0][0]

    return answer


# ---- tumbling, sliding


@settings(max_examples=50)
@given(grids, times)
@example(Grid(10, 30, 0), 16)
@example(Grid(7 * DAY, 7 * DAY, 0), END)
@example(Grid(7 * DAY, DAY, 5), NEVER)
def test_a_grid_s_windows_are_the_same_row_by_row_in_columns_and_in_sql(sql, grid, time):
    placed = list(grid.of_row(time, (), None))
    assert placed == by_columns(grid, time)
    assert all(NEVER <= start <= time < end <= END + 1 for start, end in placed)
    ends = sql(grid.sql_ends(f"CAST({time} AS bigint)")) or []
    assert [extent.within(grid.start(end), end) for end in ends] == placed
    assert not ends or sql(grid.sql_start(str(ends[0]))) == grid.start(ends[0])
    if not grid.overlaps:
        assert sql(grid.sql_last_end(f"CAST({time} AS bigint)")) == ends[0]


@given(grids, times, st.integers(-200, 200), st.sampled_from([0, 1, 15, DAY]))
@example(Grid(10, 30, 0), 16, 84, 0)
def test_sql_says_of_the_rows_of_no_window_that_they_are_not_too_late_for_one(sql, grid, time, behind, lateness):
    stamp = min(max(time + behind, NEVER), END - 1)
    exact = classify_lateness(grid, lateness, np.array([time], dtype=np.int64), np.array([stamp], dtype=np.int64)).side[
        0
    ]
    assert sql(grid.sql_maybe_dropped(f"CAST({time} AS bigint)", lateness, str(stamp))) == bool(exact)


@given(st.integers(NEVER - 400 * DAY, END + 400 * DAY))
@example(END + 1)
@example(NEVER - 1)
def test_a_bound_beyond_time_is_shown_as_the_first_or_the_last_instant_there_is(sql, moment):
    shown = extent.bounds(np.array([moment], dtype=np.int64)).to_pylist()[0]
    inside = from_ms(moment) if NEVER <= moment <= END else None
    assert shown == (inside or datetime(*((1, 1, 1) if moment < 0 else (9999, 12, 31, 23, 59, 59, 999999)), tzinfo=UTC))
    assert sql(f"epoch_us({extent.sql_bound(f'CAST({moment} AS bigint)')})") == (shown - from_ms(0)) // timedelta(
        0, 0, 1
    )
    last = extent.event_times(np.array([moment], dtype=np.int64))[0]
    assert sql(extent.sql_event_time(f"CAST({moment} AS bigint)")) == last <= END


# ---- calendars


@given(st.sampled_from(["day", "week", "month"]), st.sampled_from(ZONES), st.integers(-12, 12), times)
@example("day", "Africa/Monrovia", 0, to_ms(datetime(1971, 6, 1, 0, 44, 45, tzinfo=UTC)))
@example("day", "Europe/Amsterdam", 0, to_ms(datetime(1936, 6, 1, 22, 40, 28, tzinfo=UTC)))
@example("day", "America/New_York", 0, NEVER)
@example("month", "Asia/Tokyo", 0, END)
def test_a_calendar_s_windows_are_the_same_row_by_row_and_in_columns(unit, timezone, hours, time):
    days = assigner(fm.Calendar(unit, timezone, f"{hours}h"))
    placed = list(days.of_row(time, (), None))
    assert placed == by_columns(days, time)
    ((start, end),) = placed
    assert NEVER <= start <= time < end <= END + 1
    if start > NEVER:
        assert days.of_row(start - 1, (), None)[0][1] == start
    if end <= END:
        assert days.of_row(end, (), None)[0][0] == end
    assert first_needed(days.window, time) <= time


@given(st.sampled_from(["day", "week", "month"]), st.sampled_from(ZONES), st.integers(NEVER + 40 * DAY, END - 40 * DAY))
def test_the_rows_of_a_calendar_window_have_one_local_date(unit, timezone, time):
    ((start, end),) = assigner(fm.Calendar(unit, timezone)).of_row(time, (), None)

    def named(moment: int):
        day = from_ms(moment).astimezone(zone(timezone)).date()
        return {"day": day, "week": day - timedelta(days=day.weekday()), "month": (day.year, day.month)}[unit]

    assert named(start) == named(time) == named(end - 1)
    assert named(start - 1) < named(time) < named(end)


# ---- all kinds, to both ends of time


class Shifts(fm.WindowAssigner):
    def assign(self, time, row):
        start = time - time % DAY
        return [(max(start, NEVER), start + DAY)]


class Row(fm.Contract):
    at: fm.EventTime
    i: int


KINDS = {
    "tumbling": fm.Tumbling("1 week"),
    "a day": fm.Tumbling("1 day"),
    "sliding": fm.Sliding("2 days", "1 day", offset="6h"),
    "gaps": fm.Sliding("1 day", "2 days"),
    "cumulative": fm.Cumulative("3 days", "1 day", offset="1 day"),
    "days": fm.Calendar("day", "America/New_York"),
    "weeks": fm.Calendar("week", "Asia/Tokyo"),
    "months": fm.Calendar("month"),
    "session": fm.Session("2 days"),
    "own gap": fm.Session("i * 86400000", per_row=True),
    "global": fm.Global(),
    "own": Shifts(),
}
AT = [NEVER, NEVER + DAY, NEVER + 9 * DAY, -1, 0, END - 9 * DAY, END - DAY, END]


def windowed(window, **settings):
    @fm.operator(name="o")
    def o(r: fm.Stream[Row]) -> fm.Stream:
        return r.window(window, **settings).aggregate(n=fm.count(), last=fm.max("i"))

    return o


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_window_takes_rows_from_the_year_1_to_the_year_9999(kind):
    window, plain = KINDS[kind], kind not in {"session", "own gap", "own"}
    rows = [{"at": from_ms(t), "i": i + 1} for i, t in enumerate(AT)]
    results = IN_MEMORY[0](windowed(window), {"r": rows})[""]
    counted = {"gaps": None, "cumulative": None, "sliding": 2 * len(AT)}.get(kind, len(AT))
    assert counted is None or sum(r["n"] for r in results) == counted
    if kind == "global":
        return
    for result in results:
        assert result["window_start"] <= from_ms(AT[result["last"] - 1]) < result["window_end"]
    if plain:
        slow = windowed(window, trigger=fm.AfterWatermark().early(fm.AfterCount(99)))
        order = lambda results: sorted(results, key=lambda r: (r["window_end"], r["window_start"]))  # noqa: E731
        assert order(IN_MEMORY[0](slow, {"r": rows})[""]) == order(results)


def test_the_last_windows_of_time_are_on_time_for_what_follows():
    @fm.operator(name="weeks")
    def weeks(r: fm.Stream[Row]) -> fm.Stream:
        return r.window(fm.Tumbling("1 week")).aggregate(n=fm.count())

    @fm.operator(name="days", inputs={"w": weeks})
    def days(w: fm.Stream) -> fm.Stream:
        return w.window(fm.Calendar("day")).aggregate(n=fm.sum("n"))

    log = Log(weeks.inputs[0].schema)
    log.row({"at": from_ms(END), "i": 1}, END)
    log.end()
    made = MemoryRun(weeks).batch({"r": log.table()})[""]
    assert made["_watermark"].to_pylist()[0] < made["_event_time"].to_pylist()[0] == END
    after = MemoryRun(days).batch({"w": made})[""].to_pylist()
    assert [(r["n"], r["window_end"]) for r in after if r["_kind"] == 0] == [(1, from_ms(END) + timedelta(0, 0, 999))]


# ---- gaps of rows


class Gap(fm.Contract):
    at: fm.EventTime
    key: str
    gap: float | None = None
    whole: int | None = None
    exact: Decimal | None = None


def gapped(expression: str, on_error: str = "stop"):
    @fm.operator(name="o")
    def o(r: fm.Stream[Gap]) -> fm.Stream:
        windows = r.key_by("key").window(fm.Session(expression, per_row=True), on_error=on_error)
        return windows.aggregate(n=fm.count())

    return o


@pytest.mark.parametrize(
    ("column", "value", "milliseconds"),
    [
        ("gap", 1500.9, 1500),
        ("gap", 0.25, 1),
        ("gap", float("inf"), None),
        ("gap", 1e300, None),
        ("whole", 2**62, None),
        ("whole", 2**63 - 1, None),
        ("whole", 5, 5),
        ("exact", Decimal(10**37), None),
        ("exact", Decimal(7), 7),
    ],
)
def test_a_gap_is_cut_to_whole_milliseconds_and_ends_with_time(column, value, milliseconds):
    rows = [{"at": from_ms(1000), "key": "a", column: value}]
    (session,) = IN_MEMORY[0](gapped(column), {"r": rows})[""]
    end = from_ms(END) + timedelta(0, 0, 999) if milliseconds is None else from_ms(1000 + milliseconds)
    assert (session["window_start"], session["window_end"]) == (from_ms(1000), end)


BAD = [("gap", float("nan"), "nan"), ("gap", -float("inf"), "-inf"), ("gap", None, "null")]
BAD += [("gap", 0.0, "0.0"), ("gap", -1.0, "-1.0"), ("whole", -(2**63), str(-(2**63))), ("whole", None, "null")]


@pytest.mark.parametrize(("column", "value", "shown"), BAD)
def test_a_row_without_a_gap_stops_the_run_in_words(column, value, shown):
    rows = [{"at": from_ms(NEVER), "key": "a", column: value}]
    with pytest.raises(UserCodeError) as refused:
        IN_MEMORY[0](gapped(column), {"r": rows})
    assert refused.value.code == "EXECUTION-045"
    assert str(refused.value).startswith(
        f"EXECUTION-045 step 'o', key (key='a'), session gap '{column}': expected milliseconds, more than 0, "
        f"got {shown} for the row of 0001-01-01T00:00:00Z. "
    )


@pytest.mark.parametrize("cut", [None, 1, 2])
@pytest.mark.parametrize(("column", "value", "shown"), BAD)
def test_a_row_without_a_gap_is_set_aside_and_leaves_no_trace(column, value, shown, cut):
    operator = gapped(column, on_error="quarantine")
    log, run = Log(operator.inputs[0].schema), MemoryRun(operator)
    for time, gap in ((0, 10), (5, value), (12, 10)):
        log.row({"at": from_ms(time), "key": "a", column: gap}, time)
    log.end()
    parts = [(0, None)] if cut is None else [(0, cut), (cut, None)]
    batches = [run.batch({"r": log.table(*part)}) for part in parts]
    sessions = [r for batch in batches for r in batch[""].to_pylist() if r["_kind"] == 0]
    assert [(r["n"], r["window_start"], r["window_end"]) for r in sessions] == [
        (1, from_ms(0), from_ms(10)),
        (1, from_ms(12), from_ms(22)),
    ]
    ((reason, time),) = [
        (r["reason"], r["_event_time"]) for b in batches for r in b["quarantine"].to_pylist() if r["_kind"] == 0
    ]
    assert reason == f"{shown} for the row of 1970-01-01T00:00:00.005Z"
    assert time == 5


def test_a_late_row_without_a_name_in_ascii_needs_no_gap_in_sql():
    kind = kind_of(fm.Session("größe * 1000", per_row=True))
    assert kind.sql_maybe_dropped("t", 5, "w") == "(t) + 1 - 1 + 5 <= w"


def test_keys_and_results_may_have_the_names_that_kernels_have_for_their_own_columns():
    class Placed(fm.Contract):
        at: fm.EventTime
        group: str
        end: int

    @fm.operator
    def placed(rows: fm.Stream[Placed]) -> fm.Stream:
        return rows.key_by("group").window(fm.Tumbling("1 hour")).aggregate(slice=fm.sum("end"), main=fm.count())

    log = Log(placed.inputs[0].schema)
    for number, key in enumerate("abcabc"):
        log.row({"at": from_ms(number), "group": key, "end": number}, number)
    log.end()
    rows = [row for row in MemoryRun(placed).batch({"rows": log.table()})[""].to_pylist() if row["_kind"] == 0]
    assert sorted((row["group"], row["slice"], row["main"]) for row in rows) == [("a", 3, 2), ("b", 5, 2), ("c", 7, 2)]


# ---- definitions


@pytest.mark.parametrize("key", ["window_start", "window_end"])
def test_a_key_named_like_a_window_s_bounds_is_refused_when_defined(key):
    @fm.operator(name="hourly")
    def hourly(r: fm.Stream[Row]) -> fm.Stream:
        return r.window(fm.Tumbling("1 hour")).aggregate(n=fm.count())

    def again(fixed):
        @fm.operator(name="again", inputs={"h": hourly})
        def body(h: fm.Stream) -> fm.Stream:
            keyed = h.with_columns(**{f"of_{key}": key}).key_by(f"of_{key}") if fixed else h.key_by(key)
            return keyed.window(fm.Tumbling("1 day")).aggregate(n=fm.sum("n"))

        return body

    with pytest.raises(DefinitionError) as refused:
        again(fixed=False)
    assert refused.value.code == "DEFINITION-135"
    assert f'.with_columns(of_{key}="{key}").key_by("of_{key}")' in refused.value.fix
    assert again(fixed=True).outputs[0].schema.names[0] == f"of_{key}"


@pytest.mark.parametrize(("date", "key"), [("0201-03-05", "0201-03-05"), ("9999-12-30", "9999-12-30")])
def test_the_name_of_a_partition_has_four_digits_of_the_year(date, key):
    moment = to_ms(datetime.fromisoformat(date).replace(hour=7, tzinfo=UTC))
    assert Daily(date).key(moment) == key
    assert Daily(date).around(moment).start == moment - 7 * 3_600_000
    assert Hourly(f"{date}T00:00").key(moment) == f"{key}T0700Z"


# ---- numbers of rows


def test_a_micro_batch_whose_rows_would_count_as_a_bounded_run_s_is_refused():
    assert first_sequence((1 << 26) - 2) + SEQUENCES == BOUNDED
    with pytest.raises(ExecutionError, match="at most 67,108,863 micro-batches, got micro-batch 67,108,863") as refused:
        first_sequence((1 << 26) - 1)
    assert refused.value.code == "EXECUTION-046"
    assert "--from-scratch" in refused.value.fix


@pytest.mark.parametrize(("micros", "bound"), [(999000, "9999-12-31T23:59:59.999Z"), (999001, None), (999999, None)])
def test_a_file_with_the_last_instant_has_no_upper_bound_in_its_statistics(tmp_path, micros, bound):
    instants = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, micros, tzinfo=UTC)]
    pq.write_table(pa.table({"t": pa.array(instants, pa.timestamp("us", "UTC"))}), tmp_path / "t.parquet")
    written = json.loads(statistics(pq.read_metadata(tmp_path / "t.parquet")))
    assert written["minValues"] == {"t": "0001-01-01T00:00:00.000Z"}
    assert written["maxValues"].get("t") == bound


@pytest.mark.parametrize("name", ZONES)
@given(time=st.integers(to_ms(datetime(1990, 1, 1, tzinfo=UTC)), to_ms(datetime(2035, 1, 1, tzinfo=UTC))))
def test_the_window_of_an_asset_partition_holds_what_the_partition_holds(name: str, time: int) -> None:
    partitions = [Daily("2013-01-01", timezone=name, end="2014-01-01")]
    if name != "Australia/Lord_Howe":  # its clocks change by half an hour
        partitions.append(Hourly("2013-01-01T05:00", timezone=name))
    for cut in partitions:
        around = cut.around(time)
        assert by_columns(kind_of(fm.Global.per(cut)), time) == [(around.start, around.end)]


def test_the_window_of_an_asset_partition_is_asked_for_with_days_or_hours() -> None:
    assert fm.Global.per(Daily("2013-01-01")) == fm.Global.per(Daily("2020-01-01", end="2021-01-01"))
    with pytest.raises(
        DefinitionError, match=r"DEFINITION-230 Global.per: expected Daily\(...\) or Hourly\(...\), got 'day'"
    ):
        fm.Global.per("day")


def test_hours_as_dagster_writes_them_are_the_same_hours() -> None:
    written = Hourly("2025-03-01-00:00", timezone="Asia/Kolkata", end="2025-04-01-00:00")
    assert written == Hourly("2025-03-01T00:00", timezone="Asia/Kolkata", end="2025-04-01T00:00")
    assert written.key(to_ms(datetime(2025, 3, 1, tzinfo=UTC))) == Hourly("2025-03-01", timezone="Asia/Kolkata").key(
        to_ms(datetime(2025, 3, 1, tzinfo=UTC))
    )
    with pytest.raises(DefinitionError, match="DEFINITION-090"):
        Hourly("2025-03-01-00:30")


@pytest.mark.parametrize(
    ("unit", "place", "offset", "since"),
    [
        ("day", "America/New_York", "0 s", "2013-03-01"),
        ("day", "Pacific/Apia", "0 s", "2011-12-20"),
        ("day", "Australia/Lord_Howe", "3 hours", "2013-10-01"),
        ("week", "Europe/Berlin", "0 s", "2013-01-01"),
        ("month", "Asia/Kolkata", "-90 minutes", "2013-01-01"),
    ],
)
def test_calendar_windows_listed_in_sql_are_those_of_the_kernel(unit, place, offset, since):
    window, days = fm.Calendar(unit, place, offset), 60
    start = int(datetime.fromisoformat(since).replace(tzinfo=UTC).timestamp() * 1000) + 7_000_000
    interval = Interval(start=start, end=start + days * 86_400_000)
    listed = ListedDays.of(window, interval, 100)
    drawn = random.Random(3)
    times = [drawn.randrange(start - 40 * 86_400_000, interval.end + 40 * 86_400_000) for _ in range(400)]
    times += [boundary + step for boundary in listed.boundaries for step in (-1, 0, 1)]
    placed = [(time, *Days(window).of_row(time, (), None)[0]) for time in times]
    expected = [(begin, end) if interval.start < end <= interval.end else (None, None) for _, begin, end in placed]
    placed_rows = f"SELECT {listed.sql_last_end('t')} AS e, n FROM (SELECT unnest(?) AS t, unnest(?) AS n)"
    sql = f"SELECT CASE WHEN e IS NOT NULL THEN {listed.sql_start('e')} END, e FROM ({placed_rows}) ORDER BY n"
    found = duckdb.execute(sql, [times, list(range(len(times)))]).fetchall()
    assert found == expected
    assert ListedDays.of(window, Interval(), 100) is None
    assert ListedDays.of(window, interval, 1) is None
