"""A landing is killed between any two of its writes; the next one makes the log what it would have been."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import forked
import pytest
from borrowed import lend, take_back
from processes import failure
from pyspark.sql import SparkSession
from stored import rows

from floodmark.control.processes.engine import Computing
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.upkeep import maintain
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing

PROGRAM = Path(__file__).with_name("landing_process.py")
_LATER = {"landing.before_log": 2, "landing.after_log": 2}
"""Points at which dying a second time round says more, as there is a state to go on from."""

IN_TURN = (
    "landing.before_create",
    "landing.after_create",
    "landing.after_quarantine",
    "landing.before_recover",  # there is something to recover once a landing has died with its quarantine written
    "landing.after_recover",
    "landing.after_log",
    "landing.before_end",
    "landing.after_end",
    "landing.after_files",
)
"""One point per gap between two writes. Those left out see the same files as the one before them, and are tried one by one in ``make soak``."""
ON_SPARK = ("landing.after_quarantine", "landing.after_log")
"""Only the driver of Java dies; ``make soak`` tries all points, and kills Java too. Java is killed in every run with a stream: test_operator_crash.py."""


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("landing_process", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["landing_process"] = module
    spec.loader.exec_module(module)
    return module


def die(
    point: str, action: str, lake: Path, inbox: Path, java: SparkSession | None = None, *, engine: str = "spark"
) -> None:
    """Run the program until it kills itself at a point, and its Java, unless that is lent."""
    at = f"{point}:{_LATER.get(point, 1)}"
    command = [sys.executable, str(PROGRAM), action, str(lake), str(inbox), engine]
    environment = {**os.environ, crash.VARIABLE: at, **(lend(java) if java else {})}
    if java or engine == "embedded":
        done = forked.run(command, env=environment)
    else:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if java:
        take_back(java)
    assert done.returncode == -signal.SIGKILL, f"{point} was never reached: {failure(done.stderr)}"


def tables(root: Path) -> dict[str, list[object]]:
    """Everything the landing has written, in order."""
    lake = Lake(str(root))
    _, newest = next(history.standing_of(lake.log("readings"), Landing))
    names = {(row.ordinal, row.name, row.status) for row in rows(lake.internal("sources", "readings", "files"))}
    return {
        "log": rows(lake.log("readings"), "_sequence"),
        "quarantine": rows(lake.quarantine("readings"), "file", "position"),
        "files": sorted(names),
        "state": [newest.state.as_json()],
    }


@pytest.fixture(scope="module")
def inbox(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("crash") / "inbox"
    program().write_inbox(folder)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(embedded: Computing, tmp_path_factory, inbox) -> dict[str, Path]:
    """Lakes nobody was killed over: landed; landed and replayed; landed to the end. On one engine: both land the same."""
    root = tmp_path_factory.mktemp("uninterrupted")
    module, lakes = program(), {}
    for action in ("land", "land to the end"):
        lakes[action] = root / action.replace(" ", "_")
        module.act(embedded, action, str(lakes[action]), str(inbox))
    lakes["replay"] = root / "replay"
    shutil.copytree(lakes["land"], lakes["replay"])
    module.act(embedded, "replay", str(lakes["replay"]), str(inbox))
    return lakes


def check(lake: Path, expected: Path) -> None:
    found, wanted = tables(lake), tables(expected)
    assert [row._sequence for row in found["log"]] == list(range(len(found["log"])))
    assert found == wanted


@pytest.mark.feature("F8", "Z18")
@pytest.mark.timeout(1800)
def test_a_landing_killed_at_every_point_in_turn_goes_on_as_if_nothing_had_happened(
    engine, tmp_path, inbox, uninterrupted
) -> None:
    lake = tmp_path / "lake"
    for point in IN_TURN if engine.name == "embedded" else ON_SPARK:
        java = None if engine.name == "embedded" else engine.spark
        die(point, "land to the end", lake, inbox, java, engine=engine.name)
    program().act(engine, "land to the end", str(lake), str(inbox))
    check(lake, uninterrupted["land to the end"])


@pytest.mark.timeout(1800)
def test_a_replay_killed_at_every_point_in_turn_lands_every_row_once(engine, tmp_path, inbox, uninterrupted) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(uninterrupted["land"], lake)
    for point in ("replay.before_mark", "replay.after_mark", "replay.after_log"):
        java = None if engine.name == "embedded" or point == "replay.after_mark" else engine.spark
        die(point, "replay", lake, inbox, java, engine=engine.name)
    program().act(engine, "replay", str(lake), str(inbox))
    check(lake, uninterrupted["replay"])


@pytest.mark.timeout(1800)
def test_a_replay_killed_beside_upkeep_lands_every_row_once(engine, tmp_path, inbox, uninterrupted) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(uninterrupted["land"], lake)
    over, failed = threading.Event(), list[BaseException]()

    def keep_up() -> None:
        try:
            while not over.is_set():
                maintain(Lake(str(lake)), hours=1)
        except BaseException as error:  # noqa: BLE001 - of another thread
            failed.append(error)

    upkeep = threading.Thread(target=keep_up)
    upkeep.start()
    try:
        for point in crash.POINTS["replay"]:
            die(point, "replay", lake, inbox, engine=engine.name)
    finally:
        over.set()
        upkeep.join()
    assert not failed
    maintain(Lake(str(lake)), hours=0)
    program().act(engine, "replay", str(lake), str(inbox))
    check(lake, uninterrupted["replay"])
    maintain(Lake(str(lake)), hours=0)
    check(lake, uninterrupted["replay"])


@pytest.mark.timeout(1800)
def test_a_log_that_is_reopened_goes_on_wherever_that_was_killed(engine, tmp_path, inbox, uninterrupted) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(uninterrupted["land to the end"], lake)
    for point in crash.POINTS["reopen"]:
        die(point, "reopen", lake, inbox, engine=engine.name)
    program().act(engine, "reopen", str(lake), str(inbox))
    found, expected = tables(lake), tables(uninterrupted["land"])
    assert found == expected
    program().act(engine, "land to the end", str(lake), str(inbox))
    assert tables(lake)["state"] == tables(uninterrupted["land to the end"])["state"]


@pytest.mark.engines(soak=("embedded", "spark"))
@pytest.mark.parametrize("point", crash.POINTS["landing"])
def test_a_killed_landing_goes_on_as_if_nothing_had_happened(engine, tmp_path, inbox, uninterrupted, point) -> None:
    lake = tmp_path / "lake"
    if "recover" in point:
        die("landing.after_quarantine", "land to the end", lake, inbox, engine=engine.name)
    die(point, "land to the end", lake, inbox, engine=engine.name)
    program().act(engine, "land to the end", str(lake), str(inbox))
    check(lake, uninterrupted["land to the end"])


@pytest.mark.engines(soak=("embedded", "spark"))
@pytest.mark.parametrize("point", crash.POINTS["replay"])
def test_a_killed_replay_lands_every_row_once(engine, tmp_path, inbox, uninterrupted, point) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(uninterrupted["land"], lake)
    die(point, "replay", lake, inbox, engine=engine.name)
    program().act(engine, "replay", str(lake), str(inbox))
    check(lake, uninterrupted["replay"])
