"""An experiment of the shop on real drivers: each verb is killed at each of its steps and given again, and all ends as if it had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import forked
import pytest
from deltalake import DeltaTable
from processes import end_drivers, paths
from rolled_shop import has_begun, rows

from floodmark.control.state.store import CONTROL, Store
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments
from floodmark.observe.comparison.closed import read_comparison

OPERATOR = "hourly_sales"
LATER = 15
"""The hour behind what the experiment has seen."""
MORE = 'cents=sum("cents"))\n        .with_columns(mean="cents / orders")\n    )'


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """A shop whose stream runs, and whose code has a column more since; nothing of it is left afterwards."""
    said(tmp_path, "init", "shop")
    folder = tmp_path / "shop"
    said(folder, "land", "orders")
    variables = environment() | forked.starting_forks()
    supervisor = forked.begin(command("supervise"), cwd=folder, env=variables, stdout=subprocess.DEVNULL)
    try:
        said(folder, "start", OPERATOR)
        until(lambda: has_begun(folder / "lake"))
        operators = folder / "operators" / "orders.py"
        operators.write_text(operators.read_text().replace('cents=sum("cents"))\n    )', MORE))
        yield folder
    finally:
        supervisor.kill()
        supervisor.wait()
        found = store(folder)
        for one in found.deployments():
            end_drivers(found.drivers(one.stream, 5))


def store(folder: Path) -> Store:
    return Store(f"sqlite:///{folder}/.floodmark/control/control.db")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "floodmark.cli.main", *arguments]


def environment(at: str = "") -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at}


def program(folder: Path, *arguments: str, at: str = "") -> subprocess.CompletedProcess[str]:
    return forked.run(command(*arguments), cwd=folder, env=environment(at))


def said(folder: Path, *arguments: str) -> dict[str, Any]:
    done = program(folder, *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def killed(folder: Path, at: str, *arguments: str) -> None:
    done = program(folder, *arguments, at=at)
    assert done.returncode == -signal.SIGKILL, (at, done.stdout, done.stderr)
    found = store(folder)
    for one in found.deployments():  # the turn of the one that was killed would be over after a while
        found.release(one.stream.action, found.holder(one.stream.action) or "")


def until(what: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def carried_on(shop: Path, folder: str) -> int:
    """Rows that are compared and the same after an upkeep, without anybody asking for a report."""
    command = [sys.executable, "-m", "floodmark.control.processes.upkeep", str(shop / ".floodmark" / "control"), "{}"]
    control = {CONTROL: f"sqlite:///{shop}/.floodmark/control/control.db"}
    done = forked.run(command, env=environment() | control)
    assert done.returncode == 0, done.stdout + done.stderr
    known = read_comparison(folder)
    assert known is not None
    return known.counts.equal


def order(folder: Path, hours: range) -> None:
    """Orders of some more hours."""
    lines = [
        f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{'DE' if n % 2 else 'FR'},1,{n * 100},"
        for hour in hours
        for n in range(20)
    ]
    first = next(one for one in sorted((folder / "inbox" / "orders").iterdir())).read_text().splitlines()[0]
    (folder / "inbox" / "orders" / f"more-{hours.start}.csv").write_text("\n".join([first, *lines]) + "\n")
    said(folder, "land", "orders")


def newest(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last result of each window: revisions only add orders."""
    return list({one[:2]: one for one in sorted(found)}.values())


def report(shop: Path, lake: Lake) -> None:
    """Ask for a report until something has closed; afterwards upkeep goes on with it."""
    order(shop, range(12, 15))
    told: dict[str, Any] = {}

    def closed() -> bool:
        told.update(json.loads(program(shop, "experiment", "report", "mean", "--json").stdout))
        compared = told["found"]["b"].get(OPERATOR)
        counted = all(one["usage"]["rows"] >= 60 for one in told["operations"])  # drivers say so every two seconds
        return compared is not None and compared["counts"]["equal"] >= 4 and counted

    until(closed)
    assert told["same"]
    counts = told["found"]["b"][OPERATOR]["counts"]
    made, upto = experiments.find(lake, "mean"), told["found"]["b"][OPERATOR]["upto"]
    ends = [one[1].timestamp() * 1000 for one in rows(Path(made.arms[0].root) / "outputs" / OPERATOR)]
    assert counts["equal"] == sum(made.since < end <= upto for end in ends)
    assert any(end <= made.since for end in ends), "what was found before the arms parted is there, and is not compared"
    for one in told["operations"]:
        assert one["usage"]["processor"] > 0
        assert one["usage"]["memory"] > 2**20
        assert one["state"] > 0
    page = shop / "report.html"
    assert program(shop, "experiment", "report", "mean", "--html", str(page)).returncode == 0
    assert f"all of {counts['equal']:,} rows are the same; other columns: mean" in page.read_text()
    assert "columns country, window_start, window_end, orders, cents, mean=cents / orders" in page.read_text()
    assert [one["name"] for one in told["found"]["b"][OPERATOR]["schema"]] == ["mean"]
    order(shop, range(15, 16))
    folder = experiments.comparison_of(lake, "mean", "b", OPERATOR)
    until(lambda: carried_on(shop, folder) > counts["equal"])
    assert not store(shop).last("upkeep")["detail"]["errors"]


@pytest.mark.feature("V8", "R7")
@pytest.mark.timeout(900)
def test_an_experiment_whose_verbs_are_killed_at_each_step(shop: Path) -> None:
    lake = Lake(str(shop / "lake"))
    begins = ("experiment", "start", "mean", "--of", OPERATOR)
    for point in ("after_record", "after_fork", "after_arm", "after_arms"):
        killed(shop, f"experiment.{point}:1", *begins)
        assert experiments.find(lake, "mean").state == ("running" if point == "after_arms" else "starting"), point
    said(shop, "experiment", "resume", "mean")
    refused = program(shop, "experiment", "start", "other", "--of", OPERATOR)
    assert "LIFECYCLE-091" in refused.stderr
    assert "floodmark experiment stop mean" in refused.stderr

    report(shop, lake)
    first = Path(experiments.find(lake, "mean").arms[0].root) / "outputs" / OPERATOR
    until(lambda: rows(shop / "lake" / "outputs" / OPERATOR) == rows(first))
    before = rows(shop / "lake" / "outputs" / OPERATOR)

    promotes = ("experiment", "promote", "mean", "--arm", "b", "--soak", "0.5")
    would = [step["step"] for step in said(shop, *promotes, "--dry-run")["steps"]]
    switched = ["restore_state", "restore_table", "restore_values", "restore_table", "make_current"]
    assert would == ["stop", "save", "follow", *switched, "deploy", "verify"]
    for point in ("step.follow", "step.restore_state", "step.restore_table", "switch.after_journal"):
        killed(shop, f"{point}:1", *promotes)
    assert said(shop, *promotes)["promoted"] == "b"
    again = program(shop, *promotes)
    assert "LIFECYCLE-095" in again.stderr, "it is over"
    assert rows(shop / "lake" / "outputs" / OPERATOR) == before, "no window is lost, or there twice"
    order(shop, range(16, 19))
    until(lambda: any(one[1].hour > LATER for one in rows(shop / "lake" / "outputs" / OPERATOR)))
    fresh = [one for one in rows(shop / "lake" / "outputs" / OPERATOR, "mean") if one[1].hour > LATER]
    assert all(one[4] == one[3] / one[2] for one in fresh), "it goes on in the code of the arm"

    back = store(shop).actions(limit=1)[0].savepoint
    said(shop, "rollback", OPERATOR, "--to", str(back))
    assert set(before) <= set(rows(shop / "lake" / "outputs" / OPERATOR))
    assert "mean" not in {one.name for one in DeltaTable(str(shop / "lake" / "outputs" / OPERATOR)).schema().fields}
    killed(shop, "experiment.after_withdrawal:1", "experiment", "clean", "mean")
    said(shop, "experiment", "clean", "mean")
    assert [one.lake for one in store(shop).deployments()] == [str(shop / "lake")]
    assert not experiments.known(lake)
    assert "LIFECYCLE-090" in program(shop, "experiment", "clean", "mean").stderr


@pytest.mark.soak
@pytest.mark.feature("V8", "V4")
@pytest.mark.timeout(900)
def test_an_arm_with_another_window_computes_all_input_and_becomes_the_stream(shop: Path, tmp_path: Path) -> None:
    code = shop / "operators" / "orders.py"
    text = code.read_text()
    assert 'Tumbling("1 hour")' in text
    code.write_text(text.replace('Tumbling("1 hour")', 'Tumbling("2 hours")'))
    begins = ("experiment", "start", "longer", "--of", OPERATOR)
    refused = program(shop, *begins)
    assert "LIFECYCLE-094" in refused.stderr
    assert "--rebuild" in refused.stderr
    for point in ("after_fork", "after_arm"):
        killed(shop, f"experiment.{point}:2", *begins, "--rebuild")
    made = said(shop, *begins, "--rebuild")
    assert [one["anew"] for one in made["arms"]] == [False, True]
    order(shop, range(12, 19))
    arm = Path(made["arms"][1]["root"]) / "outputs" / OPERATOR
    until(lambda: DeltaTable.is_deltatable(str(arm)) and any(one[1].hour >= LATER for one in rows(arm)))
    assert said(shop, "experiment", "promote", "longer", "--arm", "b", "--soak", "0.5")["promoted"] == "b"
    other = tmp_path / "bounded"
    logs = {**environment(), "FLOODMARK_LOGS": str(shop / "lake")}
    bounded = forked.run(command("run", OPERATOR, "--lake", str(other)), cwd=shop, env=logs)
    assert bounded.returncode == 0, bounded.stderr
    closed = 16  # the last window that the watermark has passed; the end of a bounded run closes all
    found = [one for one in rows(other / "outputs" / OPERATOR, "window_start", "mean") if one[1].hour <= closed]
    until(lambda: rows(shop / "lake" / "outputs" / OPERATOR, "window_start", "mean") == found)
    assert min(one[1] for one in found) < max(one[1] for one in found), "windows from the first row on"
    assert {(one[1] - one[4]).total_seconds() for one in found} == {7200}


@pytest.mark.soak
@pytest.mark.feature("V8", "Z5")
@pytest.mark.timeout(900)
def test_a_cut_over_by_event_time_leaves_what_was_final(shop: Path) -> None:
    """Windows that end before it stay as the old version has made them, the others are the new one's; killed at each step it is the same."""
    code, lake = shop / "operators" / "orders.py", Lake(str(shop / "lake"))
    code.write_text(code.read_text().replace('mean="cents / orders"', 'cents="cents * 2"'))
    made = said(shop, "experiment", "start", "doubled", "--of", OPERATOR)
    stream, arm = shop / "lake" / "outputs" / OPERATOR, Path(made["arms"][1]["root"]) / "outputs" / OPERATOR
    known = rows(stream)
    order(shop, range(12, 19))
    until(lambda: len(rows(stream)) == len(rows(arm)) > len(known) and rows(stream) != rows(arm))
    old, new = rows(stream), rows(arm)
    assert [one[:3] for one in old] == [one[:3] for one in new]

    promotes = ("experiment", "promote", "doubled", "--arm", "b", "--soak", "0.5", "--cutover")
    late = program(shop, *promotes, "2030-01-01")
    assert "LIFECYCLE-111" in late.stderr
    assert "where results are final" in late.stderr
    assert "LIFECYCLE-002" in program(shop, *promotes, "tomorrow").stderr
    assert experiments.find(lake, "doubled").state == "running"
    cut = datetime(2025, 3, 1, 15, tzinfo=UTC)
    promotes = (*promotes, "2025-03-01T15:00Z")
    would = [step["origin"] for step in said(shop, *promotes, "--dry-run")["steps"] if step["step"] == "restore_table"]
    assert all("from 2025-03-01T15:00:00Z on" in origin for origin in would)
    for point in ("step.restore_values", "graft.before_commit", "step.make_current", "step.deploy", "step.verify"):
        killed(shop, f"{point}:1", *promotes)
    assert said(shop, *promotes)["promoted"] == "b"
    assert [one.reason for one in store(shop).actions()].count("") == 1, "verified once, not taken back in between"
    expected = [one for one in old if one[1] <= cut] + [one for one in new if one[1] > cut]
    assert sorted(expected) not in (old, new)
    assert rows(stream) == sorted(expected)
    assert rows(Path(f"{stream}__current")) == newest(expected)
    order(shop, range(19, 22))
    until(lambda: any(one[1].hour > 19 for one in rows(stream)))
    fresh = [one for one in rows(stream) if one[1].hour > 19]
    assert all(one[3] == 2 * 100 * sum(n for n in range(20) if (n % 2 == 1) is (one[0] == "DE")) for one in fresh)
    until(lambda: newest(rows(stream)) == rows(Path(f"{stream}__current")))

    back = store(shop).actions(limit=1)[0].savepoint
    said(shop, "rollback", OPERATOR, "--to", str(back))
    assert set(old) <= set(rows(stream))
