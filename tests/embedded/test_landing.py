"""Landing without Java: what only this engine does. What both do alike is in tests/spark/test_landing.py, for each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest
from deltalake import DeltaTable
from stored import rows

from floodmark.core.errors import CapabilityError
from floodmark.core.time import NEVER, to_ms
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing import lander, spool
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.landed import LandedUnits
from floodmark.spec.rows.connector import Files, Rows
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import Ascending, Punctuated, Source


class Reading(Contract):
    at: EventTime
    value: int


def readings(count: int, predicate: str | None = None) -> Source:
    found = [{"at": f"2001-01-01T00:{n // 60:02d}:{n % 60:02d}", "value": n} for n in range(count)]
    watermark = Ascending() if predicate is None else Punctuated(predicate)
    return Source("readings", contract=Reading, connector=Rows(found), watermark=watermark)


def none() -> Sail:
    raise AssertionError("no server is needed")


def test_a_landing_asks_for_no_server_and_imports_no_spark(lake: Lake, tmp_path) -> None:
    program = """
import sys
from floodmark.engines.embedded.landing.run import land
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.source import Ascending, Source
class Reading(Contract):
    at: EventTime
source = Source("readings", contract=Reading, connector=Rows([{"at": "2001-01-01"}]), watermark=Ascending())
assert land(None, source, Lake(sys.argv[1])).rows == 1
print(sorted({"pyspark", "grpc", "pysail"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program, lake.root], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_server_that_is_killed_at_each_use_costs_a_landing_a_retry(lake: Lake, monkeypatch) -> None:
    sail, killed = Sail(300), []
    lent = sail.lent

    @contextmanager
    def dying():
        with lent() as connection:
            if len(killed) < 2:
                killed.append(connection.server.pid)
                os.kill(killed[-1], signal.SIGKILL)
                psutil.Process(killed[-1]).wait(60)
            yield connection

    monkeypatch.setattr(sail, "lent", dying)
    try:
        assert land(lambda: sail, readings(5, "value = 2"), lake).rows == 5
    finally:
        sail.close()
    assert len(set(killed)) == 2
    found = rows(lake.log("readings"), "_sequence")
    moved = to_ms(found[2]._event_time) - 1
    assert [row._watermark for row in found] == [NEVER] * 3 + [moved] * 3


def test_a_predicate_and_a_lake_that_only_spark_takes_are_refused_before_anything_is_written(lake: Lake) -> None:
    with pytest.raises(CapabilityError, match=r"CAPABILITY-031 .*floodmark land readings --engine spark"):
        land(none, readings(1, "format_number(value * 1.5, 2) = '3.00'"), lake)
    assert not DeltaTable.is_deltatable(lake.log("readings"))
    with pytest.raises(CapabilityError, match=r"CAPABILITY-033 .*floodmark land readings --engine spark"):
        land(none, readings(1), Lake("hdfs://host/lake"))


def test_what_does_not_fit_into_memory_lands_from_disk(lake: Lake, monkeypatch) -> None:
    monkeypatch.setattr(spool, "_IN_MEMORY", 1000)
    assert land(none, readings(300), lake).rows == 300
    assert [row.value for row in rows(lake.log("readings"), "_sequence") if row._kind == 0] == list(range(300))


@pytest.mark.parametrize(("poll_seconds", "flushes"), [(0.0, [20, 25]), (1.0, [*range(1, 26), 25])])
def test_a_landing_that_looks_often_writes_the_list_of_landed_files_now_and_then(
    lake: Lake, tmp_path, monkeypatch, poll_seconds, flushes
) -> None:
    inbox, written, flush = tmp_path / "inbox", list[int](), LandedUnits.flush
    inbox.mkdir()

    class Arriving:
        """In each pause the next file arrives; the landing stops after 25 of them."""

        files = 0

        def is_set(self) -> bool:
            return self.files > 25

        def wait(self, _: float | None = None) -> bool:
            self.files += 1
            if not self.is_set():
                (inbox / f"{self.files}.csv").write_text(f"at,value\n2001-01-01T00:00:{self.files:02},1\n")
            return self.is_set()

    def flushed(units: LandedUnits) -> None:
        written.append(len(units))
        flush(units)

    monkeypatch.setattr(LandedUnits, "flush", flushed)
    monkeypatch.setattr(lander, "_QUIET_SECONDS", 1.0 if poll_seconds else 1e9)
    connector, stop = Files(str(inbox), min_age="0 s"), Arriving()
    stop.wait()
    source = Source("readings", contract=Reading, connector=connector, watermark=Ascending())
    assert land(none, source, lake, until_caught_up=False, stop=stop, poll_seconds=poll_seconds).units == 25
    assert written == flushes
