"""The control store, the broker and the object store away at once, while messages are sent and streams run: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from background import in_background
from deltalake import DeltaTable
from postgres import data_folder, database, serving
from s3_server import Plan
from supervised import fleet_of

from floodmark.lake.stream.delivered import delivered

from .test_kafka_pipeline import (
    CODE,
    LONG_MS,
    PATIENCE_SECONDS,
    STREAMS,
    Pipeline,
    computed,
    expected,
    landed,
    read,
    supervising,
    until,
)

if TYPE_CHECKING:
    from kafka_broker import Broker
    from s3_server import Proxy, Server

PARTITIONS = 3
FELT = 5
"""Requests to the object store that the shortest outage meets."""


@contextmanager
def hanging_up(proxy: Proxy) -> Iterator[Callable[[], bool]]:
    """Connections to the object store end without an answer; whether requests have met that."""
    proxy.plan(Plan(fault="away"))
    try:
        yield lambda: proxy.faults()["away"] >= FELT
    finally:
        proxy.plan()


@contextmanager
def hanging(proxy: Proxy) -> Iterator[Callable[[], bool]]:
    """Requests to the object store are taken, and nobody answers, nor says how many they are."""
    os.kill(proxy.pid, signal.SIGSTOP)
    try:
        yield lambda: True
    finally:
        os.kill(proxy.pid, signal.SIGCONT)


@pytest.mark.feature("Z15")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("count", "seconds", "away"),
    [
        (3_000, 0, hanging_up),
        pytest.param(300_000, 60, hanging_up, marks=pytest.mark.soak),
        pytest.param(300_000, 60, hanging, marks=pytest.mark.soak),
    ],
)
def test_nothing_is_lost_or_twice_where_all_stores_are_away(
    broker: Broker,
    s3: Server,
    s3_proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    seconds: int,
    away: Callable[[Proxy], AbstractContextManager[Callable[[], bool]]],
) -> None:
    """A driver is killed meanwhile, and nobody can say so. Without seconds the outage lasts until requests have met it."""
    topic, sink, step = broker.topic(PARTITIONS), broker.topic(3), LONG_MS // count
    code = CODE.replace("TOPIC", topic).replace("SINK", sink).replace("SERVERS", broker.servers)
    code = code.replace("ENGINE", "embedded").replace("UNIT", f"{max(100, count // 100)}")
    with data_folder() as data, ExitStack() as store:
        server = store.enter_context(serving(data))
        monkeypatch.setenv("FLOODMARK_CONTROL_STORE", database(server, "control"))
        fleet = fleet_of(tmp_path, code, f"{s3.bucket()}/lake")
        pipeline = Pipeline(fleet, broker, topic)
        pipeline.put(range(count // 3), step, PARTITIONS)
        with supervising(fleet):
            fleet.start(fleet.workspace.streams)
            until(lambda: landed(fleet), "rows in the log")
            pids = [pipeline.running(name).pid for name in STREAMS]
            sending = in_background(pipeline.put, range(count // 3, count), step, PARTITIONS)
            with away(s3_proxy) as felt:
                broker.kill()
                store.close()
                began = time.monotonic()
                assert pids[1] is not None
                os.kill(pids[1], signal.SIGKILL)
                until(lambda: felt() and time.monotonic() - began >= seconds, "requests")
                store.enter_context(serving(data))
                broker.start()
            sending.result(PATIENCE_SECONDS)
            pipeline.close_windows(PARTITIONS)
            until(lambda: len(landed(fleet)) >= count, "all messages in the log")
            assert landed(fleet) == [*range(count)]
            wanted = expected(count, step)
            until(lambda: computed(fleet) == wanted, "all results in the lake")
            newest = DeltaTable(fleet.lake.output("minutely")).version()
            until(lambda: (at := delivered(fleet.lake, STREAMS[2])) and at.version >= newest, "all delivered")
            assert read(broker, sink) == wanted
