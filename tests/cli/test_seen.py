"""Streams are seen: metrics for Prometheus, pages and ``top``, from a real supervisor whose driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import pytest
from deltalake import DeltaTable
from otlp_collector import collecting
from processes import end_drivers
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from floodmark.control.state.store import Store

from .conftest import command, program

OPERATOR = "hourly_sales"
SECONDS = 300
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The spans that drivers send."""
    with collecting() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # ms between two exports
        yield received


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: list[Any]) -> Path:
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    assert program(tmp_path, "init", "shop").returncode == 0
    return tmp_path / "shop"


@pytest.fixture
def store(shop: Path) -> Store:
    return Store(f"sqlite:///{shop}/.floodmark/control/control.db")


@pytest.fixture
def supervisor(shop: Path, store: Store) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Supervisors; they and what they started are gone afterwards."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        variables = os.environ | forked.starting_forks()
        begun.append(forked.begin(command("supervise"), cwd=shop, env=variables, stdout=subprocess.DEVNULL))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()
    for one in store.deployments():
        end_drivers(store.drivers(one.stream))


def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(url: str) -> dict[tuple[str, ...], float]:
    """(name, operator, further label) -> value, as a scraper reads them, which checks the format."""
    status, text = get(f"{url}/metrics", OPEN_METRICS)
    assert status == 200, text
    values: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert {labels.pop("environment"), labels.pop("lake").endswith("/lake")} == {"dev", True}
            assert labels.pop("version").startswith(labels["operator"])
            values[(sample.name, labels.pop("operator"), *labels.values())] = sample.value
    return values


def rows(table: DeltaTable) -> int:
    return table.to_pyarrow_table(columns=["_kind"])["_kind"].to_pylist().count(0)


@pytest.mark.feature("N1", "N2", "N3", "N6", "O5")
def test_metrics_of_a_stream_are_exact_and_only_grow_though_its_driver_and_its_supervisor_are_killed(
    shop: Path, store: Store, supervisor: Callable[[], subprocess.Popen[bytes]], spans: list[Any]
) -> None:
    assert program(shop, "land", "orders").returncode == 0
    assert program(shop, "start", OPERATOR).returncode == 0
    first = supervisor()
    scraped: list[dict[tuple[str, ...], float]] = []

    def url() -> str:
        note = store.last("serve")
        return "" if note is None else str(note["detail"]["url"])

    def until(seen: Callable[[dict[tuple[str, ...], float]], bool]) -> dict[tuple[str, ...], float]:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                scraped.append(samples(url()))
            except (urllib.error.URLError, ValueError, ConnectionError):  # no supervisor serves yet
                time.sleep(0.1)
                continue
            if seen(scraped[-1]):
                return scraped[-1]
            time.sleep(0.1)
        raise AssertionError(scraped[-1:])

    def crashes(values: dict[tuple[str, ...], float]) -> float:
        return values["floodmark_driver_crashes_total", OPERATOR]

    until(lambda values: values["floodmark_commits_total", OPERATOR] > 0)
    driver = store.drivers(store.deployments()[0].stream)[0]
    os.kill(driver.pid or 0, signal.SIGKILL)
    until(lambda values: crashes(values) == 1 and values["floodmark_driver_starts_total", OPERATOR] == 2)
    first.kill()
    first.wait()
    store.release("supervisor", store.holder("supervisor") or "")
    supervisor()
    assert program(shop, "land", "orders", "--end").returncode == 0
    log = DeltaTable(str(shop / "lake" / "logs" / "orders"))
    read = log.to_pyarrow_table(columns=["_kind"]).num_rows
    last = until(lambda values: values["floodmark_rows_in_total", OPERATOR] >= read)
    assert last["floodmark_rows_in_total", OPERATOR] == read, "each row counts once"
    output = DeltaTable(str(shop / "lake" / "outputs" / OPERATOR))
    assert last["floodmark_rows_out_total", OPERATOR, OPERATOR] == rows(output) > 0
    assert last["floodmark_backlog_commits", OPERATOR] == 0
    assert last["floodmark_checkpoint_duration_seconds_count", OPERATOR] > 0
    assert last["floodmark_state_bytes", OPERATOR] > 0
    grow(scraped)
    look(shop, url())
    (told,) = json.loads(program(shop, "top", "--json").stdout)["streams"]
    assert (told["totals"]["rows_in"], told["totals"]["crashes"]) == (read, 1)
    assert told["pressure"] in {"ok", "low", "high"}
    assert program(shop, "stop", OPERATOR).returncode == 0
    assert {f"micro-batch {OPERATOR}", "read", "compute", "checkpoint", "commit"} <= {span.name for span in spans}


def grow(scraped: list[dict[tuple[str, ...], float]]) -> None:
    """Counters only grow."""
    for before, after in pairwise(scraped):
        for key, value in before.items():
            if key[0].endswith(("_total", "_count", "_sum")):
                assert after.get(key, 0) >= value, key


def look(shop: Path, url: str) -> None:
    """The pages, ``top`` and ``status``."""
    status, page = get(f"{url}/streams/{OPERATOR}")
    assert status == 200
    for text in ("Program", "Micro-batches", "Checkpoints", "killed by SIGKILL", "Savepoints", "Log", "<svg"):
        assert text in page
    assert f"/streams/{OPERATOR}?lake=" in get(url)[1]
    status, page = get(f"{url}/streams/none%3Cb%3E")
    assert (status, "<b>" in page, "&lt;b&gt;" in page) == (404, False, True)
    assert json.loads(get(f"{url}/grafana.json")[1])["uid"] == "floodmark-streams"
    assert get(f"{url}/rules.yaml")[1].startswith("# Alerts")
    assert get(f"{url}/", {"Host": "attacker.example"})[0] == 403

    shown = program(shop, "top", "--once")
    assert OPERATOR in shown.stdout, shown.stderr
    assert "backpressure" in program(shop, "status").stdout


def test_a_port_that_is_taken_is_named_and_the_default_gives_way(shop: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = program(shop, "supervise", "--metrics-port", str(taken.getsockname()[1]))
    assert refused.returncode == 1
    assert refused.stderr.startswith("SETUP-074 metrics and pages at 127.0.0.1:")
