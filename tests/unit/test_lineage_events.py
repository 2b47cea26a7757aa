"""Events of OpenLineage about streams, as a backend receives them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from floodmark.control.serving import lineage
from floodmark.control.serving.lineage import Lineage, telling
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.core.errors import SetupError
from floodmark.observe.measure import Measure

ABOUT: dict[str, Any] = {"root": "/", "environment": "dev", "package": "p", "version": "v", "desired": "running"}
TOTALS = Deployment(operator="totals", lake="/lake", **ABOUT)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(f"sqlite:///{tmp_path}/control.db")
    made.deploy(TOTALS)
    return made


def commit(store: Store, number: int) -> None:
    read = {"/lake/logs/events": (number + 3, -1, "id", None), "s3a://bucket/lake/logs/rates": (1, -1, "id", None)}
    measures.record(store, TOTALS.stream, Measure(history="t", number=number, at=1.0, rows={"totals": 1}, read=read))


def test_a_run_is_a_driver_and_long_streams_are_told_of_every_few_minutes(store: Store) -> None:
    told: list[dict[str, Any]] = []
    teller = Lineage(store, lambda event: told.append(json.loads(Serde.to_json(event))), every=300, since=0)
    driver = store.begin(TOTALS, "/log")
    teller.look(0)
    assert told == [], "it has read nothing yet"
    commit(store, 0)
    store.update(driver.id, batch=0)
    for now in range(1, 1000, 10):
        commit(store, now)
        teller.look(now)
    assert [event["eventType"] for event in told] == ["START", "RUNNING", "RUNNING", "RUNNING"]
    store.end(driver.id, "crashed", "EXECUTION-004 something")
    second = store.begin(TOTALS, "/log")
    store.update(second.id, batch=1000)
    for now in (1001, 1002):
        teller.look(now)
    store.end(second.id, "stopped", "stopped at a micro-batch boundary")
    for now in (1003, 1004):
        teller.look(now)
    assert [event["eventType"] for event in told[4:]] == ["FAIL", "START", "COMPLETE"]
    assert told[4]["run"]["facets"]["errorMessage"]["message"] == "EXECUTION-004 something"
    assert len({event["run"]["runId"] for event in told[:5]}) == 1
    assert told[5]["run"]["runId"] == told[6]["run"]["runId"] != told[0]["run"]["runId"]
    for event in told:
        assert (event["job"]["namespace"], event["job"]["name"]) == ("floodmark-dev", "totals")
        assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
        assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [
            ("file", "/lake/logs/events"),
            ("s3://bucket", "lake/logs/rates"),
        ]
        assert [(one["namespace"], one["name"]) for one in event["outputs"]] == [("file", "/lake/outputs/totals")]
    assert told[1]["inputs"][0]["facets"]["version"]["datasetVersion"] == str(301 + 3), "what is read by then"
    again = list[Any]()
    Lineage(store, again.append).look(1005)
    assert again == [], "a supervisor that comes later tells of no driver that ended before"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Any], threading.Event]]:
    """The events that a backend has received, and whether there is one."""
    received, arrived = list[Any](), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            arrived.set()
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv(lineage.ADDRESS, f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(lineage, "_POLL_SECONDS", 0.01)
    yield received, arrived
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_supervisor_sends_events_to_a_backend(store: Store, backend: tuple[list[Any], threading.Event]) -> None:
    received, arrived = backend
    driver = store.begin(TOTALS, "/log")
    commit(store, 0)
    store.update(driver.id, batch=0)
    with telling(store, pytest.fail):
        assert arrived.wait(60)
        store.end(driver.id, "stopped", "")
    assert [event["eventType"] for event in received] == ["START", "COMPLETE"], "the last look is at the end"


def test_a_backend_that_is_away_is_said_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said, looks = list[str](), threading.Event()

    def refuse(self: Lineage, now: float) -> None:
        if len(said) > 1:
            looks.set()
        if not looks.is_set():
            said.append("look")
        raise ConnectionError("refused")

    monkeypatch.setattr(Lineage, "look", refuse)
    monkeypatch.setattr(lineage, "_POLL_SECONDS", 0.01)
    with telling(store, said.append, {lineage.ADDRESS: "http://127.0.0.1:1"}):
        assert looks.wait(60)
    assert said.count("lineage: ConnectionError: refused") == 1


@pytest.mark.parametrize("minutes", ["soon", "0", "-1", "inf", "nan"])
def test_minutes_that_are_none_are_refused(store: Store, minutes: str) -> None:
    environment = {lineage.ADDRESS: "http://127.0.0.1:1", lineage.MINUTES: minutes}
    with pytest.raises(SetupError, match=f"SETUP-075 events of lineage: .*got '{minutes}'"):
        telling(store, pytest.fail, environment).__enter__()


def test_without_an_address_or_the_package_a_supervisor_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def missing() -> None:
        raise ImportError(name="openlineage")

    monkeypatch.setattr(lineage, "_client", missing)
    with telling(store, said.append, {}):
        pass
    assert said == []
    with telling(store, said.append, {lineage.ADDRESS: "http://127.0.0.1:1"}):
        pass
    assert said == ["no lineage is told, as openlineage is missing: pip install 'floodmark[openlineage]'"]
