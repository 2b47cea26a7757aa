"""The class archive is built once, by one process, in the background; what a killed build leaves is removed by the next one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from floodmark.engines.spark.setup import archive, home, jars

BUILDER = """
import sys
from pathlib import Path
from floodmark.engines.spark.setup import archive

def warm_up(fresh, folder):
    fresh.write_text("half")
    print("building", flush=True)
    sys.stdin.readline()
    fresh.write_text("classes")

print(archive.build(Path(sys.argv[1]), warm_up), flush=True)
"""


def builder(target: Path) -> subprocess.Popen[str]:
    """A process that builds; its warm-up waits for a line."""
    command = [sys.executable, "-c", BUILDER, str(target)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_of_builders_at_the_same_time_one_builds_and_the_others_leave(tmp_path: Path) -> None:
    target = tmp_path / "classes-a.jsa"
    with builder(target) as first:
        assert first.stdout.readline() == "building\n"
        with ThreadPoolExecutor(3) as pool:
            others = [pool.submit(lambda: builder(target).communicate("\n")[0]) for _ in range(3)]
            assert [one.result() for one in others] == ["False\n"] * 3
        assert not target.exists()
        assert first.communicate("\n")[0] == "True\n"
    assert target.read_text() == "classes"
    assert builder(target).communicate("\n")[0] == "False\n"


def test_a_build_that_was_killed_leaves_no_archive_and_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "classes-a.jsa"
    with builder(target) as killed:
        assert killed.stdout.readline() == "building\n"
        os.kill(killed.pid, signal.SIGKILL)
    assert not target.exists()
    assert len(list(tmp_path.glob("building-*"))) == 1
    assert builder(target).communicate("\n")[0] == "building\nTrue\n"
    assert target.read_text() == "classes"
    assert not list(tmp_path.glob("building-*"))


def test_a_build_that_fails_is_not_tried_at_each_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, started = tmp_path / "classes-a.jsa", list[object]()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))

    def failing(fresh: Path, folder: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        archive.build(target, failing)
    archive.start_build(target)
    assert not started
    failed = target.with_suffix(".failed")
    os.utime(failed, (0, time.time() - 3601))
    archive.start_build(target)
    assert len(started) == 1, "an hour later"
    failed.unlink()
    archive.start_build(target)
    assert len(started) == 2


def test_nothing_is_started_while_one_is_built_or_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, started = tmp_path / "classes-a.jsa", list[object]()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))
    with FileLock(tmp_path / "classes.lock"):
        archive.start_build(target)
    target.touch()
    archive.start_build(target)
    assert not started
    assert archive.options(target)[-4] == f"-XX:SharedArchiveFile={target}"


def test_the_archives_that_were_used_last_stay(tmp_path: Path) -> None:
    older = [tmp_path / f"classes-{number}.jsa" for number in range(8)]
    for age, file in enumerate(older):
        file.touch()
        os.utime(file, (1_000 + age, 1_000 + age))
    archive.options(older[0])
    archive.build(target := tmp_path / "classes-new.jsa", lambda fresh, _: fresh.touch())
    assert target.exists()
    assert [file for file in older if not file.exists()] == [older[1]]


def test_executors_have_the_class_path_and_the_archive_of_their_machine(tmp_path: Path) -> None:
    jars = [tmp_path / "a.jar", tmp_path / "b.jar"]
    settings = archive.of_executors(tmp_path / "classes.jsa", jars)
    assert settings["spark.executor.extraClassPath"].split(os.pathsep) == [str(jar) for jar in jars]
    assert settings["spark.executor.extraJavaOptions"].startswith(f"-XX:SharedArchiveFile={tmp_path / 'classes.jsa'} ")


def test_settings_of_executors_take_a_folder_with_a_space(tmp_path: Path) -> None:
    """Spark divides the options of executors as a shell does."""
    options = archive.of_executors(tmp_path / "a folder" / "classes.jsa", [])["spark.executor.extraJavaOptions"]
    assert shlex.split(options)[0] == f"-XX:SharedArchiveFile={tmp_path}/a folder/classes.jsa"


@pytest.mark.parametrize("kept", ["classes.lock", archive.LOG])
def test_a_session_starts_where_its_user_may_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """Into a cache in an image, or of another user. A folder in the place of a file stands for one that may not be written, which root may."""
    started = list[object]()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))
    (tmp_path / kept).mkdir()
    archive.start_build(tmp_path / "classes-a.jsa")
    assert not started


def test_nothing_is_written_where_all_jars_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").touch()
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path))
    home.link(tmp_path)
    before = sorted(tmp_path.iterdir())
    jars.fetch(jars.Jars(name="A", folder="jars", coordinates=(), excluded=(), files=("a.jar",)))
    assert sorted(tmp_path.iterdir()) == before
