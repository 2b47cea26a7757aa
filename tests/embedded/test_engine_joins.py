"""Bounded joins that the engine computes as one plan."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from engine_joins import JOINS, check
from events import START, Event, disorder

from floodmark import Stream, operator, sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.bounded import pool, run
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.frames.fast import joins, window_joins
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.steps import JoinKind
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs


@pytest.mark.feature("J7", "J6", "B6")
@pytest.mark.parametrize("case", JOINS)
@pytest.mark.few(3)
def test_a_bounded_join_of_the_engine_has_the_rows_of_the_kernel(engine: Computing, tmp_path: Path, case: str) -> None:
    check(engine, tmp_path, case)


@pytest.mark.feature("B6")
def test_last_values_of_rows_that_all_stay_are_the_same_files(engine: Computing, tmp_path: Path) -> None:
    check(engine, tmp_path, "inner")
    output, current = (
        DeltaTable(str(path)).file_uris() for path in sorted(Path(tmp_path, "outputs").glob("together*"))
    )
    assert {Path(file).stat().st_ino for file in output} == {Path(file).stat().st_ino for file in current}


@pytest.mark.feature("J7", "B6")
@pytest.mark.parametrize(
    ("lower", "upper", "kind"),
    [
        ("-7 minutes", "3 minutes", "inner"),
        ("0 s", "0 s", "inner"),
        ("2 minutes", "9 minutes", "left"),
        ("-7 minutes", "-1 ms", "right"),
        ("-1 minute", "6 minutes", "semi"),
        ("-9 minutes", "2 minutes", "anti"),
    ],
)
def test_an_interval_join_of_the_engine_has_the_pairs_of_the_kernel(
    engine: Computing, tmp_path: Path, lower: str, upper: str, kind: JoinKind
) -> None:
    """Over all of time, and over an interval that cuts pairs; of rows that came late no pair, and their number."""

    @operator
    def paired(events: Stream[Event]) -> Stream:
        keyed = events.key_by("key")
        return keyed.interval_join(
            events.filter("value % 2 = 0").key_by("key"), lower, upper, kind=kind, prefix="other_"
        )

    assert paired.stateful is not None
    log, lake, middle = disorder(paired, 3, 200), Lake(str(tmp_path)), to_ms(START) + 47 * 60_000
    land(lake, paired, log)
    rows = log.table()
    late = [row for row in rows.to_pylist() if row["_kind"] == ROW and row["_event_time"] <= row["_watermark"]]
    pairs = [row for row in MemoryRun(paired).batch({"events": rows})[""].to_pylist() if row["_kind"] == ROW]
    for interval in (Interval(), Interval(start=middle, end=middle + 30 * 60_000)):
        assert joins.possible(paired, paired.stateful, interval)
        result = engine.run_bounded(paired, lake, interval, force=True)
        wanted = [pair for pair in pairs if interval.start <= _ms(pair["_event_time"]) < interval.end]
        made = [row for row in outputs(lake, paired)[""].to_pylist() if row["_kind"] == ROW]
        made = [row for row in made if interval.start <= _ms(row["_event_time"]) < interval.end]
        assert _counted(made) == _counted(wanted)
        dropped = [row for row in late if interval.start <= _ms(row["_event_time"]) < interval.end]
        assert result.dropped == len(dropped) + len([row for row in dropped if row["value"] % 2 == 0])
    assert late
    assert pairs


_HOPS = "TABLE(HOP(TABLE events, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '20' MINUTES))"
HOTTEST = f"""SELECT h.key, h.n FROM (SELECT key, COUNT(*) AS n, window_start AS s, window_end AS e FROM {_HOPS} GROUP BY key, window_start, window_end) AS h
    JOIN (SELECT MAX(c.n) AS most, c.s, c.e FROM (SELECT COUNT(*) AS n, window_start AS s, window_end AS e FROM {_HOPS} GROUP BY key, window_start, window_end) AS c
    GROUP BY c.s, c.e) AS m ON h.s = m.s AND h.e = m.e AND h.n >= m.most"""


@pytest.mark.feature("J7", "B6")
@pytest.mark.parametrize("years", [0, 200])
def test_rows_are_joined_with_the_one_row_of_their_window_by_the_engine_however_many_they_are(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """Unless there may be too many windows: a row that is 200 years behind the others."""
    hottest, by_kernel = sql_operator("hottest", HOTTEST, inputs={"events": Event}), list[Any]()
    log, lake = disorder(hottest, 3, 200), Lake(str(tmp_path))
    for entry in log.entries[-2:-1] if years else ():
        entry["at"] += timedelta(days=365 * years)
        entry["_event_time"] = to_ms(entry["at"])
    land(lake, hottest, log)
    joined = hottest.links[-1]
    assert joined.stateful is not None
    assert window_joins.a_window_each(joined, joined.stateful) == 1
    kernels = pool.computed
    monkeypatch.setattr(pool, "computed", lambda *given: by_kernel.append(given) or kernels(*given))
    monkeypatch.setattr(run, "_are_small", lambda *_: False)
    engine.run_bounded(hottest, lake, Interval(), force=True)
    assert bool(by_kernel) == (years > 0 and engine.name == "embedded"), "Spark's workers are other processes"
    made, wanted = (
        _counted([row for row in table.to_pylist() if row["_kind"] == ROW])
        for table in (outputs(lake, hottest)[""], MemoryRun(hottest).batch({"events": log.table()})[""])
    )
    assert made == wanted
    assert made


@pytest.mark.parametrize(
    ("aggregate", "side"), [("MAX(value)", 1), ("MAX(key)", None), ("ARRAY_AGG(DISTINCT value)", None)]
)
def test_a_side_whose_rows_may_be_as_long_as_all_that_it_reads_is_not_taken_for_small(
    aggregate: str, side: int | None
) -> None:
    times = "window_start AS s, window_end AS e"
    hops = f"SELECT key, COUNT(*) AS n, {times} FROM {_HOPS} GROUP BY key, window_start, window_end"
    whole = f"SELECT {aggregate} AS a, {times} FROM {_HOPS} GROUP BY window_start, window_end"
    text = f"SELECT h.key, h.n, w.a FROM ({hops}) AS h JOIN ({whole}) AS w ON h.s = w.s AND h.e = w.e"
    joined = sql_operator("joined", text, inputs={"events": Event}).links[-1]
    assert joined.stateful is not None
    assert window_joins.a_window_each(joined, joined.stateful) == side


def _ms(time: Any) -> int:
    return time if isinstance(time, int) else to_ms(time)


def _counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    names = [name for name in rows[0] if not name.startswith("_")] if rows else []
    stamps = ((_ms(row["_event_time"]), row["_watermark"]) for row in rows)
    return Counter((*stamp, *(row[name] for name in names)) for stamp, row in zip(stamps, rows, strict=True))
