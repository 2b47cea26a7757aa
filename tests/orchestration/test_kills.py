"""Partitions of runs of which each step has a process: as a stream; killed or terminated between two tables and run again, exactly right."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from dagster_server import ROOT, Server, serving, until
from flights import answer, changelog, in_days

from definitions import workspace
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration.partitions import definition, interval_of

ASSETS = ("hourly_departures", "hourly_departures__late")
DAYS = ("2013-01-01", "2013-01-03")
ONE_BY_ONE = ("2013-01-01", "2013-01-02", "2013-01-03")
MODULE = """
import os, time
from pathlib import Path
import dagster as dg
from definitions import workspace
from floodmark.core import crash
from floodmark.orchestration import build_definitions

def point(name):
    folder = Path(__file__).parent
    if name == "bounded.after_side" and (folder / "hold").exists():
        (folder / "held.part").write_text(str(os.getpid()))
        (folder / "held.part").rename(folder / "held")
        while (folder / "hold").exists():
            time.sleep(0.02)

crash.point = point
defs = build_definitions(workspace(), root=Path(__file__).parent, executor=dg.multiprocess_executor)
"""
"""A run that has written its first table and finds the file ``hold`` says which process it is, and waits until ``hold`` is gone."""


@pytest.fixture(scope="module")
def server(
    engine_name: str, inbox: Path, landed_log: Lake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Dagster on the reference workspace, each step in a process of its own."""
    folder = tmp_path_factory.mktemp("apart")
    shutil.copytree(landed_log.root, folder / "lake")
    (folder / "apart.py").write_text(MODULE)
    (folder / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "apart"\n')
    load = "{module_name: apart, working_directory: .}"
    (folder / "workspace.yaml").write_text(f"load_from: [{{python_module: {load}}}]\n")
    variables = {"FLOODMARK_LAKE": str(folder / "lake"), "FLOODMARK_FOLDER": str(inbox.parent), "PYTHONPATH": str(ROOT)}
    variables["FLOODMARK_ENGINE"] = engine_name
    with serving(folder, folder / "state", location="apart", **variables) as found:
        yield found


@pytest.fixture(scope="module")
def lake(server: Server) -> Lake:
    return Lake(str(server.state.parent / "lake"))


def hold(server: Server) -> None:
    """The next run waits between two tables."""
    (server.state.parent / "held").unlink(missing_ok=True)
    (server.state.parent / "hold").touch()


def release(server: Server) -> None:
    """Runs do not wait."""
    (server.state.parent / "hold").unlink()


def held(server: Server) -> psutil.Process:
    """The process that waits."""
    file = server.state.parent / "held"
    until(file.exists, 300)
    return psutil.Process(int(file.read_text()))


def exact(embedded: Computing, lake: Lake, landed_log: Lake, day: str, tmp_path: Path) -> None:
    """The day's rows are those of an undisturbed run on the embedded engine, once each."""
    operator = workspace().operator("hourly_departures")
    interval = interval_of(definition(operator.partitions).time_window_for_partition_key(day))
    other = Lake(str(tmp_path / "undisturbed"), logs=landed_log.root)
    embedded.run_bounded(operator, other, interval)
    for output in operator.outputs:
        mine, theirs = (answer(one, operator, output.name) for one in (lake, other))
        column = "scheduled" if output.side else "window_end"
        wanted = set(theirs.column(column).to_pylist())
        mine = mine.filter(pa.array([value in wanted for value in mine.column(column).to_pylist()], pa.bool_()))
        order = [(name, "ascending") for name in theirs.column_names]
        assert mine.sort_by(order).equals(theirs.sort_by(order)), output.table
    assert changelog(other, "hourly_departures").num_rows > 0


def begun(server: Server, day: str) -> tuple[str, psutil.Process]:
    """A run of a day, and its process, which has written the first table and waits."""
    hold(server)
    return server.launch(*ASSETS, tags={"dagster/partition": day}), held(server)


def launched(server: Server, first: str, last: str) -> str:
    """A run of the days, launched as soon as Dagster takes it."""
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    run: str = until(lambda: server.try_launch(*ASSETS, tags=tags), 300)
    return run


@pytest.mark.soak
@pytest.mark.feature("Z9", "Z37")
def test_a_backfill_of_one_window_per_day_gives_the_rows_of_a_stream_on_the_embedded_engine(
    embedded: Computing, server: Server, lake: Lake, landed_log: Lake, tmp_path: Path
) -> None:
    operator, stream, days = (
        workspace().operator("daily_carriers"),
        Lake(str(tmp_path), logs=landed_log.root),
        list(ONE_BY_ONE),
    )
    embedded.run_unbounded(operator, stream, until_caught_up=True)
    assert server.backfilled("daily_carriers", partitions=days) == "COMPLETED_SUCCESS"
    assert answer(lake, operator, "").num_rows > 30
    assert in_days(answer(lake, operator, ""), days).equals(in_days(answer(stream, operator, ""), days))


@pytest.mark.soak
@pytest.mark.feature("B3")
def test_days_whose_step_is_killed_or_terminated_or_that_lose_their_code_server_are_right_when_run_again(
    embedded: Computing, engine_name: str, server: Server, lake: Lake, landed_log: Lake, tmp_path: Path
) -> None:
    run, process = begun(server, "2013-01-01")
    process.send_signal(signal.SIGKILL)
    assert server.ended(run) == "FAILURE"

    run, process = begun(server, "2013-01-02")
    if engine_name == "spark":  # terminated while Java writes
        release(server)
    server.terminate(run)
    assert server.ended(run) == "CANCELED"
    until(lambda: not process.is_running(), 300)

    hold(server)
    run = launched(server, *DAYS)
    held(server)
    assert server.kill("api", "grpc") == 1
    release(server)
    if server.ended(run) != "SUCCESS":
        assert server.ended(launched(server, *DAYS)) == "SUCCESS"
    for day in ("2013-01-01", "2013-01-02", "2013-01-03"):
        exact(embedded, lake, landed_log, day, tmp_path / day)


@pytest.mark.soak
def test_a_day_whose_run_worker_is_killed_is_right_when_run_again(
    embedded: Computing, server: Server, lake: Lake, landed_log: Lake, tmp_path: Path
) -> None:
    run, process = begun(server, "2013-01-04")
    worker = process.parent()
    assert worker is not None
    assert worker.pid not in {server.process.pid, os.getpid()}
    worker.send_signal(signal.SIGKILL)
    release(server)
    assert server.ended(run) == "FAILURE"
    assert server.ended(launched(server, "2013-01-04", "2013-01-04")) == "SUCCESS"
    exact(embedded, lake, landed_log, "2013-01-04", tmp_path)
