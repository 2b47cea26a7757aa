"""Calls of another system: each row is answered once in the rows, in order, and nothing asks again for what is answered."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import calls_process
import forked
import pyarrow as pa
import pytest
from answering import Service, fetched
from calls_process import doubles
from deltalake import DeltaTable
from events import START, Event

import floodmark as fm
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.measuring import Measuring
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import Vitals, vitals
from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import shared
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.values.schema import MARKER
from floodmark.testing import lakes
from floodmark.testing.log import Log


def landed(lake: Lake, count: int, operator: fm.Operator) -> None:
    """Rows a second apart, and the end of input."""
    log = Log(operator.inputs[0].schema)
    log.rows([{"at": START + timedelta(seconds=n), "key": "abc"[n % 3], "value": n} for n in range(count)], "at", 1_000)
    log.end()
    lakes.land(lake, operator, log)


def values(lake: Lake, table: str = "doubles") -> list[tuple[int, int]]:
    """The rows of an output in order."""
    rows = DeltaTable(lake.output(table)).to_pyarrow_table().sort_by("_sequence").to_pylist()
    return [(row["value"], row["doubled"]) for row in rows if row["_kind"] != MARKER]


def recorded(lake: Lake) -> set[str]:
    """The keys of the answers that are recorded."""
    tables = (pa.ipc.open_file(file) for file in Path(lake.internal("answers", "doubles")).rglob("*.arrow"))
    return {key.hex() for table in tables for key in table.read_all()["key"].to_pylist()}


def expected(count: int) -> list[tuple[int, int]]:
    """The answers about so many rows."""
    return [(n, 2 * n) for n in range(count) if n % 10 != 3]


@pytest.mark.feature("A1")
def test_a_killed_stream_asks_again_only_for_what_was_not_recorded_and_a_replay_asks_nobody(tmp_path):
    lake, rows = Lake(str(tmp_path)), 1_000
    with Service(latency=0.05, failing=5) as service:
        asking, sail = doubles(service.port), shared()
        landed(lake, rows, asking)
        service.notify, service.holds = 600, True
        command = [sys.executable, calls_process.__file__, lake.root, str(service.port)]
        first = forked.begin(command)
        assert service.reached.wait(600)
        while not recorded(lake):  # what has been answered is, within a second or so, as no further answer comes
            assert first.poll() is None
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        known, before = recorded(lake), service.calls.copy()
        service.release()
        run_unbounded(sail, asking, lake, until_caught_up=True)
        assert values(lake) == expected(rows)
        assert len(service.calls) == rows, "every row has one key"
        assert known < service.calls.keys()
        assert all(service.calls[key] == before[key] for key in known), "nobody is asked again for what was recorded"
        assert service.busiest <= 2 * 40, "at most concurrency of the killed process and of the next one"
        asked = service.calls.total()
        run_unbounded(sail, asking, lake, until_caught_up=True, from_scratch=True)
        assert values(lake) == expected(rows)
        run_bounded(sail, asking, lake, force=True)
        assert values(lake) == expected(rows)
        whole = Lake(str(tmp_path / "fork"), logs=lake.root, upstream=lake.root)
        run_bounded(sail, asking, whole)
        assert values(whole) == expected(rows)
        assert service.calls.total() == asked, "a rebuild, a bounded run and a fork ask nobody"


@pytest.mark.feature("A1")
def test_a_call_that_fails_stops_the_run_or_is_set_aside_and_answers_stay(tmp_path):
    lake, sail = Lake(str(tmp_path)), shared()
    with Service(broken=50) as service:
        port = service.port

        async def double(row, request):
            return await fetched(port, row["value"], request.key) | {"value": row["value"]}

        @fm.operator
        def strict(events: fm.Stream[Event]) -> fm.Stream:
            return events.call(double, calls_process.Doubled, retries=1, concurrency=8, ordered=False)

        @fm.operator
        def lenient(events: fm.Stream[Event]) -> fm.Stream:
            asked = events.call(double, calls_process.Doubled, retries=1, on_error="quarantine")
            return asked.filter("value < 90")

        landed(lake, 100, strict)
        with pytest.raises(
            FloodmarkError, match=r"USER-009 call 'double': expected an answer within 2 attempts.*503.*The row was"
        ):
            run_unbounded(sail, strict, lake, until_caught_up=True)
        service.broken, before = None, set(service.calls)
        again = service.calls.copy()
        run_unbounded(sail, strict, lake, until_caught_up=True)
        assert values(lake, "strict") == [(n, 2 * n) for n in range(100)]
        repeated = [key for key in before if service.calls[key] > again[key]]
        assert len(repeated) == 1, "only the row that failed is asked about again"
        service.broken = 60
        result = run_bounded(sail, lenient, lake)
        assert result.rows == {"lenient": 89, "lenient__quarantine": 1}
        (row,) = DeltaTable(lake.output("lenient__quarantine")).to_pyarrow_table().to_pylist()
        assert (row["step"], row["reason"]) == ("call 'double'", "ConnectionError: HTTP/1.1 503 Busy")
        asked, service.broken = service.calls.total(), None
        run_unbounded(sail, lenient, lake, until_caught_up=True, from_scratch=True)
        assert len(values(lake, "lenient")) == 89, "what is set aside is recorded too"
        assert service.calls.total() == asked


@pytest.mark.soak
@pytest.mark.feature("A1")
def test_ten_thousand_rows_are_answered_by_a_service_of_200_ms_that_fails_for_one_in_twenty(tmp_path):
    lake, sail = Lake(str(tmp_path)), shared()
    with Service(latency=0.2, failing=5) as service:
        port = service.port

        async def double(row, request):
            return {"value": row["value"], **await fetched(port, row["value"], request.key)}

        @fm.operator
        def doubled(events: fm.Stream[Event]) -> fm.Stream:
            return events.call(double, calls_process.Doubled, concurrency=400)

        landed(lake, 10_000, doubled)
        result = run_unbounded(sail, doubled, lake, until_caught_up=True)
        assert values(lake, "doubled") == [(n, 2 * n) for n in range(10_000)]
        assert len(service.calls) == 10_000
        assert service.busiest <= 400
        asked = service.calls.total()
        replay = run_bounded(sail, doubled, lake, force=True)
        assert service.calls.total() == asked
        print(f"10,000 rows: {result.seconds:.1f} s, {asked:,} calls; the replay {replay.seconds:.1f} s")  # noqa: T201 - for people


@pytest.mark.feature("A1")
def test_a_service_that_answers_late_shows_as_backpressure_of_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store = Lake(str(tmp_path / "lake")), Store(f"sqlite:///{tmp_path}/control.db")
    with Service() as service:
        port = service.port

        async def double(row, request):
            return await fetched(port, row["value"], request.key) | {"value": row["value"]}

        @fm.operator
        def asked(events: fm.Stream[Event]) -> fm.Stream:
            return events.call(double, calls_process.Doubled, timeout="1 hour")

        about = {"root": str(tmp_path), "environment": "dev", "package": "p", "version": asked.version}
        store.deploy(Deployment(operator=asked.name, lake=lake.root, desired="running", **about))
        (deployment,) = store.deployments()
        job = OperatorStream(asked, fm.Settings(lake=lake.root))
        measuring = Measuring(store, store.begin(deployment, "/logs"), job, pytest.fail)

        def seen(seconds: float) -> Vitals:
            """What is seen so long after now."""
            at = store.now() + seconds
            with monkeypatch.context() as patched:
                patched.setattr(Store, "now", lambda _: at)
                return vitals(store, [deployment])[0]

        def committed(batch: BatchInfo) -> None:
            measure = job._measured(batch)
            measuring.record(measure)
            if measure.number == 0:
                service.hold()
                service.notify = service.calls.total() + 1

        log = Log(asked.inputs[0].schema)
        log.rows([{"at": START + timedelta(seconds=n), "key": "a", "value": n} for n in range(30)], "at", 1_000)
        log.end()
        for first, last in ((0, 10), (10, 20), (20, None)):
            lakes.land(lake, asked, log, first, last)

        def run() -> None:
            try:
                run_unbounded(shared(), asked, lake, until_caught_up=True, files_per_batch=1, on_batch=committed)
            finally:
                service.reached.set()

        measuring.begin()
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(run)
            service.reached.wait()
            late = seen(61.0)
            service.release()
            stream.result()
        assert (late.pressure, late.waited, late.waiting_rows) == ("high", 1.0, 21)
        assert values(lake, "asked") == [(n, 2 * n) for n in range(30)]
        after = seen(61.0)
        assert (after.pressure, after.waited, after.waiting_rows) == ("ok", 0.0, 0)
