"""The tutorials: whoever pastes their commands sees what the pages show, and the tables have what DuckDB counts in the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from console_pages import Reader, blocks, check, ran
from deltalake import DeltaTable
from page_programs import pieces
from recipes import variables

if TYPE_CHECKING:
    from kafka_broker import Broker

ROOT = Path(__file__).parents[2]
EDITS = """
    WITH pages AS (SELECT *, meta.dt::TIMESTAMPTZ AS moment FROM read_json('inbox/edits/*.json') WHERE type IN ('edit', 'new'))
    SELECT wiki, time_bucket(INTERVAL 10 minutes, moment) AS start, count(*), sum(bot::INT), sum(coalesce(length.new, 0) - coalesce(length.old, 0))
    FROM pages GROUP BY ALL ORDER BY ALL
"""
STRETCHES = """
    WITH people AS (SELECT wiki, "user", meta.dt::TIMESTAMPTZ AS moment FROM read_json('inbox/edits/*.json') WHERE type IN ('edit', 'new') AND NOT bot),
    begins AS (SELECT *, coalesce(moment - lag(moment) OVER w > INTERVAL 10 minutes, true)::INT AS begins FROM people WINDOW w AS (PARTITION BY wiki, "user" ORDER BY moment)),
    numbered AS (SELECT *, sum(begins) OVER (PARTITION BY wiki, "user" ORDER BY moment) AS number FROM begins)
    SELECT wiki, "user", min(moment) AS start, count(*) FROM numbered GROUP BY wiki, "user", number ORDER BY ALL
"""
KEPT = """
    SELECT *, timezone('America/New_York', tpep_dropoff_datetime) AS ended FROM 'inbox/trips/*.parquet'
    WHERE tpep_dropoff_datetime >= '2009-01-01' AND fare_amount > 0
"""
ZONES = f"""
    SELECT "DOLocationID", time_bucket(INTERVAL 1 hour, ended) AS start, count(*), round(avg(100 * tip_amount / fare_amount) FILTER (payment_type = 1), 6)
    FROM ({KEPT}) GROUP BY ALL ORDER BY ALL
"""
DAYS = f"SELECT timezone('America/New_York', date_trunc('day', tpep_dropoff_datetime)) AS start, count(*), sum(round(fare_amount * 100)::BIGINT) FROM ({KEPT}) GROUP BY ALL ORDER BY ALL"


def counted(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """The answer of DuckDB to a query over the files of a folder."""
    with duckdb.connect() as engine:
        engine.execute(f"SET TimeZone = 'UTC'; SET file_search_path = '{folder}'")
        return engine.sql(query).fetchall()


def table(folder: Path, name: str, columns: str) -> list[tuple[Any, ...]]:
    """The results of an output, ordered."""
    rows = DeltaTable(str(folder / name)).to_pyarrow_dataset()
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        return engine.register("rows", rows).sql(f"SELECT {columns} FROM rows WHERE _kind = 0 ORDER BY ALL").fetchall()


def read(page: str, folder: Path) -> None:
    """Do what a tutorial says."""
    shutil.copytree(ROOT / "examples" / page, folder, dirs_exist_ok=True)
    reader = Reader(
        folder, {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(folder), "PATH": os.environ["PATH"]}
    )
    for block in blocks(ROOT / "docs" / "tutorials" / f"{page}.md"):
        check(reader.do(block), block)


@pytest.mark.feature("D11")
def test_the_tutorial_of_edits_counts_as_duckdb_does(tmp_path: Path) -> None:
    read("wikipedia", tmp_path)
    windows = table(tmp_path, "lake/outputs/edits_per_wiki__current", "wiki, window_start, edits, by_bots, bytes")
    assert windows == counted(tmp_path, EDITS)
    assert table(tmp_path, "lake/outputs/stretches", 'wiki, "user", window_start, edits') == counted(
        tmp_path, STRETCHES
    )
    assert "<svg" in (tmp_path / "edits.html").read_text("utf-8")


LIVE = "https://stream.wikimedia.org/v2/stream/recentchange"


@contextmanager
def event_stream(events: Sequence[str]) -> Iterator[str]:
    """A server of events as the encyclopaedia's is, which ends after its last one: its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            self.wfile.write(b":ok\n\n")
            for number, event in enumerate(events):
                self.wfile.write(f'event: message\nid: [{{"offset":{number}}}]\ndata: {event}\n\n'.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v2/stream/recentchange"
        finally:
            server.shutdown()


def test_the_command_for_real_edits_writes_files_that_count_as_the_drawn_ones(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "wikipedia", tmp_path, dirs_exist_ok=True)
    environment = Reader(tmp_path, variables(tmp_path)).environment
    inbox, shown = tmp_path / "inbox" / "edits", pieces(ROOT / "docs" / "tutorials" / "wikipedia.md", "bash")[0]

    def do(script: str) -> None:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    do("python edits.py")
    events = [line for file in sorted(inbox.iterdir()) for line in file.read_text("utf-8").splitlines()]
    drawn = counted(tmp_path, EDITS)
    shutil.rmtree(inbox)
    inbox.mkdir()
    assert shown.count(LIVE) == 1
    with event_stream(events) as url:
        do(shown.replace(LIVE, url))
    ran(shown)
    assert [len(file.read_text("utf-8").splitlines()) for file in sorted(inbox.iterdir())] == [1000] * 4 + [800]
    do("floodmark land edits --end && floodmark run edits_per_wiki --unbounded --until-caught-up")
    windows = table(tmp_path, "lake/outputs/edits_per_wiki__current", "wiki, window_start, edits, by_bots, bytes")
    assert windows == drawn


@pytest.mark.feature("D11")
def test_the_tutorial_of_cabs_counts_as_duckdb_does(tmp_path: Path) -> None:
    read("taxis", tmp_path)
    assert table(tmp_path, "lake/outputs/hourly_zones", "zone, window_start, trips, round(tip, 6)") == counted(
        tmp_path, ZONES
    )
    assert table(tmp_path, "lake/outputs/daily", "window_start, trips, cents") == counted(tmp_path, DAYS)
    assert "<svg" in (tmp_path / "cabs.html").read_text("utf-8")


@pytest.mark.feature("D11")
@pytest.mark.parametrize(
    ("page", "program", "operator", "columns"),
    [
        ("wikipedia", "edits.py", "edits_per_wiki", "wiki, window_start, edits, by_bots, bytes"),
        pytest.param("taxis", "trips.py", "hourly_zones", "zone, window_start, trips, tip", marks=pytest.mark.soak),
    ],
)
def test_a_tutorial_computes_the_same_from_kafka(
    broker: Broker, tmp_path: Path, page: str, program: str, operator: str, columns: str
) -> None:
    shutil.copytree(ROOT / "examples" / page, tmp_path, dirs_exist_ok=True)
    shown = pieces(ROOT / "docs" / "tutorials" / f"{page}.md", "bash")[-1]
    assert shown.count("localhost:9092") == 2
    topic = shown.replace("localhost:9092", broker.servers)
    files = topic.split("\n", 2)[2].replace("from_kafka", "lake")  # the same verbs, without KAFKA
    environment = Reader(tmp_path, variables(tmp_path)).environment
    for script in (f"python {program}\n{files}", topic):
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    ran(shown)
    read, received = (table(tmp_path, f"{lake}/outputs/{operator}", columns) for lake in ("lake", "from_kafka"))
    assert read
    assert read == received
