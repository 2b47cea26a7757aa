"""A workspace against a server of Spark Connect in a process of its own, from a process without Java; the server is killed in the middle of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_site import OPERATORS, Site
from connect_server import server, without_java

pytestmark = [pytest.mark.soak, pytest.mark.spark]


@pytest.mark.feature("O1", "B1")
def test_a_workspace_runs_on_a_server_of_spark_connect_that_is_killed(tmp_path: Path) -> None:
    hidden, shared = tmp_path / "hidden", tmp_path / "shared"
    ambushed, bounded = {"AMBUSH": str(shared / "ambush")}, [f"bounded:{name}" for name in OPERATORS]
    with server(tmp_path / "first", hidden, ambushed) as (address, _):
        site = Site.made(hidden, shared, address, variables=without_java(tmp_path / "nothing"))
        first = site.run("spark", "end", "bounded:windy", "ambush:executor", "bounded:delays")
        assert "EXECUTION-125 Spark master sc://127.0.0.1" in first.stderr, first.stderr[-3000:]
        assert "floodmark run delays" in first.stderr
        assert "bounded:windy" in first.stdout
        assert (shared / "executor.killed").exists()
    with server(tmp_path / "second", hidden, ambushed) as (address, _):
        site = Site(site.workspace, shared, address, site.lakes, {}, site.variables)
        second = site.run("spark", *bounded, "unbounded:delays")
        assert "CAPABILITY-066 stream 'delays'" in second.stderr, second.stderr[-3000:]
        assert "bounded:delays" in second.stdout
        unseen = site.run("spark", "land", INBOX=str(site.workspace.parent / "inbox"))
        assert "CONNECTOR-210 source 'departures', folder" in unseen.stderr
    embedded = site.run("embedded", "end", *(f"unbounded:{name}" for name in OPERATORS), lake="embedded")
    assert embedded.returncode == 0, embedded.stderr[-3000:]
    for name in OPERATORS:
        expected = site.rows("embedded", name)
        assert expected
        assert site.rows("lake-bounded", name) == expected
    for name, rows in site.duckdb().items():
        assert site.rows("lake-bounded", name) == rows


def test_a_server_without_delta_is_told_how_it_is_started(tmp_path: Path) -> None:
    with server(tmp_path / "server", tmp_path / "hidden", without="spark.sql.") as (address, _):
        done = Site.made(tmp_path / "hidden", tmp_path / "shared", address).run("spark", "end")
    assert "SETUP-123 " in done.stderr, done.stderr[-3000:]
    assert "--packages io.delta:delta-spark" in done.stderr
