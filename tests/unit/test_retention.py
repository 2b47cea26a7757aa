"""What nobody needs goes after its time; what a stream, an action or a savepoint names stays, also while that is not known."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import forked
import pytest
from small_lake import make, totals

from floodmark.control.processes.retention import tidy
from floodmark.control.state import references
from floodmark.control.state.records import Deployment, StreamId
from floodmark.control.state.store import Store
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.retention import retire
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.timeline import Timeline

DAY = 86_400


def age(folder: Path | str, days: float) -> None:
    """Set the times of a folder and all in it back."""
    then = time.time() - days * DAY
    for path in (Path(folder), *Path(folder).rglob("*")):
        os.utime(path, (then, then))


def timelines(lake: Lake) -> list[str]:
    return sorted(path.name for path in Path(lake.internal("operators", "totals", "timelines")).iterdir())


def rolled_back(root: Path) -> tuple[Lake, savepoints.Savepoint]:
    """A lake whose stream has ended two timelines."""
    lake = make(root)
    made = savepoints.create("totals", lake)
    for _ in range(2):
        roll_back(lake, made)
    return lake, made


def test_ended_timelines_go_after_their_time_and_savepoints_of_them_still_work(tmp_path: Path) -> None:
    lake, made = rolled_back(tmp_path)
    before = totals(lake)
    age(Timeline(lake, "totals", 0).folder(), 40)
    would, _ = retire(lake, days=30, dry_run=True)
    assert timelines(lake) == ["0", "1", "2"]
    gone, stay = retire(lake, days=30)
    assert [(one.kind, one.name) for one in gone] == [("timeline", "totals/0")]
    assert would == gone
    assert gone[0].files > 3
    assert gone[0].size > 0
    assert not stay
    assert timelines(lake) == ["1", "2"]
    assert not retire(lake, days=30)[0]
    assert roll_back(lake, made).switch.targets[0].timeline == 3
    assert totals(lake) == before
    assert not savepoints.verify(made)


def test_timelines_stay_while_a_switch_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, made = rolled_back(tmp_path)
    age(Timeline(lake, "totals", 0).folder(), 40)

    def stopped(name: str) -> None:
        if name == "step.make_current":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(crash, "point", stopped)
        with pytest.raises(KeyboardInterrupt):
            roll_back(lake, made)
    gone, stay = retire(lake, days=0)
    assert not gone
    assert "not finished" in stay[0]
    roll_back(lake, made)
    assert retire(lake, days=30)[0]
    assert Timeline.current(lake, "totals").number == 3


def test_a_rebuild_that_was_given_up_goes(tmp_path: Path) -> None:
    lake = make(tmp_path)
    beside = Path(lake.internal("operators", "totals", "rebuild", "3f9a2c1b"))
    (beside / "outputs").mkdir(parents=True)
    (beside / "outputs" / "a.parquet").write_bytes(b"123")
    assert not retire(lake, days=30)[0]
    age(beside, 40)
    assert [(one.kind, one.files, one.size) for one in retire(lake, days=30)[0]] == [("rebuild", 1, 3)]
    assert not beside.exists()


@pytest.mark.parametrize("point", crash.POINTS["removal"])
@pytest.mark.few(1)
def test_removal_is_killed_and_done_again(tmp_path: Path, point: str) -> None:
    lake, made = rolled_back(tmp_path)
    for number in (0, 1):
        age(Timeline(lake, "totals", number).folder(), 40)
    program = "import sys; from floodmark.lake.folder.paths import Lake; from floodmark.lake.maintenance.retention import retire; retire(Lake(sys.argv[1]))"
    environment = {**os.environ, crash.VARIABLE: f"{point}:2"}
    done = forked.run([sys.executable, "-c", program, lake.root], env=environment)
    assert done.returncode == -signal.SIGKILL
    assert Timeline.current(lake, "totals").next().number == 3
    retire(lake)
    assert timelines(lake) == ["2"]
    assert roll_back(lake, made).switch.targets[0].timeline == 3


# ---- the control plane


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'control' / 'control.db'}")


HERE = StreamId("totals", "/lake")


def deployed(lake: str, package: str, operator: str = "totals") -> Deployment:
    return Deployment(
        operator=operator,
        root="/",
        lake=lake,
        environment="dev",
        package=package,
        version="totals@1",
        desired="running",
    )


def packages(home: Path, *names: str) -> None:
    """Old ones."""
    for name in names:
        (home / "packages" / name).mkdir(parents=True)
        (home / "packages" / name / "a.py").write_text("VALUE = 1\n")
        age(home / "packages" / name, 40)


def held(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "packages").iterdir())


def test_a_package_stays_that_a_stream_an_action_a_savepoint_or_another_store_names(
    tmp_path: Path, store: Store
) -> None:
    home, lake = tmp_path / "control", make(tmp_path / "lake")
    packages(home, "runs", "before", "next", "saved", "elsewhere", "nobody", "young")
    os.utime(home / "packages" / "young")
    savepoints.create("totals", lake, code={"package": "saved"})
    store.deploy(deployed(lake.root, "runs"))
    old = {"totals": {"package": "before", "version": "totals@0", "desired": "running", "next": "next"}}
    action = store.act(HERE, kind="upgrade", who="ann", why="", step="stopping", old=old, version="totals@1")
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    other.deploy(deployed(lake.root, "elsewhere"))
    references.record(home, other)
    would, _ = tidy(store, home, days=30, dry_run=True)
    assert "nobody" in held(home)
    gone, stay = tidy(store, home, days=30)
    assert [(one.kind, one.name, one.files, one.size) for one in gone] == [("package", "nobody", 1, 10)]
    assert would == gone
    assert not stay
    assert held(home) == ["before", "elsewhere", "next", "runs", "saved", "young"]
    store.close(action.id, "done")
    tidy(store, home, days=30)
    assert held(home) == ["elsewhere", "runs", "saved", "young"]


def test_no_package_goes_while_a_lake_is_not_there_until_it_is_said_to_be_gone_for_good(
    tmp_path: Path, store: Store
) -> None:
    home, lake = tmp_path / "control", make(tmp_path / "lake")
    packages(home, "runs", "nobody")
    store.deploy(deployed(str(tmp_path / "unmounted"), "runs"))
    tidy(store, home, days=30)
    store.deploy(deployed(lake.root, "runs"))  # the first lake is known to have run one
    (tmp_path / "unmounted").mkdir(exist_ok=True)
    gone, stay = tidy(store, home, days=30)
    assert not gone
    assert "LIFECYCLE-061" in stay[0]
    assert f"floodmark maintain --forget {tmp_path / 'unmounted'}" in stay[0]
    assert references.forget(home, store, str(tmp_path / "unmounted"))
    assert not references.forget(home, store, str(tmp_path / "unmounted"))
    assert [one.name for one in tidy(store, home, days=30)[0]] == ["nobody"]
    assert held(home) == ["runs"]


def test_no_package_goes_while_a_savepoint_or_a_list_cannot_be_read(tmp_path: Path, store: Store) -> None:
    home, lake = tmp_path / "control", make(tmp_path / "lake")
    packages(home, "nobody")
    store.deploy(deployed(lake.root, "runs"))
    made = savepoints.create("totals", lake)
    manifest = Path(made.path, "manifest.json")
    content = manifest.read_bytes()
    manifest.write_bytes(b"{")
    assert "LIFECYCLE-060" in tidy(store, home, days=30)[1][0]
    manifest.write_bytes(content)
    (home / "stores" / "other.json").write_text("[]")
    assert "LIFECYCLE-061" in tidy(store, home, days=30)[1][0]
    assert held(home) == ["nobody"]
    with pytest.raises(LifecycleError, match="LIFECYCLE-061"):
        references.named(home)


@pytest.mark.clock
def test_logs_of_drivers_and_rows_go_but_the_newest(tmp_path: Path, store: Store) -> None:
    home = tmp_path / "control"
    store.deploy(deployed("/lake", "runs"))
    for _ in range(25):
        driver = store.begin(store.deployment(HERE), str(home / "logs" / "totals"))  # type: ignore[arg-type]
        Path(driver.log).parent.mkdir(parents=True, exist_ok=True)
        Path(driver.log).write_text("line\n")
        store.end(driver.id, "stopped", "")
        store.update(driver.id, ended_at=1.0)
    for number in range(3):
        store.note("ann", "start", number=number)
        store.close(store.act(HERE, kind="upgrade", who="ann", why="", step="", old={}, version="").id, "done")
    age(home / "logs", 40)
    gone, _ = tidy(store, home, days=30)
    assert [(one.kind, one.name, one.files) for one in gone] == [
        ("logs of drivers", "totals", 24),
        ("rows of the control store", "drivers", 5),
    ]
    assert [path.name for path in (home / "logs" / "totals").iterdir()] == ["24.log"]
    assert [one.epoch for one in store.drivers(HERE, 100)] == list(range(24, 4, -1))
    would = {one.name: one.files for one in tidy(store, home, days=-1, dry_run=True)[0]}
    assert would == {"journal": 3, "actions": 2}
    tidy(store, home, days=-1)
    assert not store.notes()
    assert len(store.actions()) == 1
    assert store.begin(store.deployment(HERE), "/log").epoch == 25  # type: ignore[arg-type]


def test_of_the_long_log_of_a_driver_that_runs_the_end_stays(tmp_path: Path, store: Store) -> None:
    home = tmp_path / "control"
    store.deploy(deployed("/lake", "runs"))
    driver = store.begin(store.deployment(HERE), str(home / "logs" / "totals"))  # type: ignore[arg-type]
    log = Path(driver.log)
    log.parent.mkdir(parents=True)
    with log.open("ab") as stream:
        stream.truncate(70 << 20)
        stream.write(b"\nlast but one\n")
        stream.flush()
        (gone,) = [one for one in tidy(store, home, days=30)[0] if one.name == "totals"]
        stream.write(b"last\n")
    assert gone.size == (69 << 20) + 14
    assert log.stat().st_size <= 1 << 20
    assert log.read_bytes().endswith(b"last but one\nlast\n")
