"""The class archive (AppCDS): Java's loaded classes in a file, with which a session starts in about half the time.

No session waits for the archive. The first session without an archive starts a process that builds it in the background, with the lowest
priority; sessions use the archive from the moment it exists. One process builds at a time, under a lock that the system frees however that
process ends. The archive gets its name when it is complete, so a killed build leaves a folder, which the next build removes.

Java uses an archive only with the version, flags and class path of its build, so all of them are in the archive's name: a session
without a fitting archive starts without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from floodmark.engines.spark.setup.home import home, spark_home
from floodmark.engines.spark.setup.java import find_java

LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:-UsePerfData")
"""Java options of a local session, which is small: one collector thread, no second compiler. The default cache for compiled code is 48 MB
then, which Spark fills within a minute, after which Java compiles nothing; so a larger cache is set."""

LOG = "classes.log"
"""File with the output of the last build."""
_KEEP = 8
_WORK = "building-"
_FAILED = ".failed"
_AGAIN_SECONDS = 3600


def path(folder: Path, jars: Sequence[Path]) -> Path:
    """The path of the archive for this Java, these flags and this class path, whether the archive exists or not."""
    java = find_java()
    seed = hashlib.sha256("\n".join((str(java.home), java.version, str(home(folder)), *LEAN)).encode())
    for jar in (*jars, *sorted((spark_home() / "jars").glob("*.jar"))):
        stat = jar.stat()
        seed.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return folder / f"classes-java{java.version}-{seed.hexdigest()[:12]}.jsa"


def options(archive: Path) -> tuple[str, ...]:
    """Java options that use the archive, and note its use; only the lean options if there is no archive."""
    with suppress(OSError):
        os.utime(archive)  # the archive that was not used for the longest time is removed first
    return (*LEAN, *(_sharing(archive) if archive.is_file() else ()))


def of_executors(archive: Path, jars: Sequence[Path]) -> dict[str, str]:
    """Spark's settings with which executors use the archive of their machine; without that file they start as before.

    Args:
        archive: on the workers' machines.
        jars: as of ``path``; the class path of executors begins with them, as that of the driver does.
    """
    return {
        "spark.executor.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.executor.extraJavaOptions": " ".join(f'"{one}"' if " " in one else one for one in _sharing(archive)),
    }


def _sharing(archive: Path) -> tuple[str, ...]:
    return f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def options_to_write(archive: Path) -> tuple[str, ...]:
    """Java options that write the archive when Java ends."""
    return (*LEAN, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def start_build(archive: Path) -> None:
    """Start a process that builds the archive, and return at once.

    Nothing is started if the archive exists, is being built, a build has failed within the last hour, or this user may not write where the archive would be.
    """
    if archive.is_file() or _has_failed(archive.with_suffix(_FAILED)):
        return
    try:
        with building(archive.parent):
            pass
        log = (archive.parent / LOG).open("ab")
    except OSError:  # Timeout is one
        return
    with log:
        subprocess.Popen(
            [sys.executable, "-m", "floodmark.engines.spark.session.warmup"],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that neither Ctrl-C nor the end of this process ends the build
        )


def _has_failed(note: Path) -> bool:
    """Whether there is a note that a build has failed, which is not older than ``_AGAIN_SECONDS``: it may have been for a busy machine or a full disk."""
    with suppress(FileNotFoundError):
        return time.time() - note.stat().st_mtime < _AGAIN_SECONDS
    return False


def build(archive: Path, warm_up: Callable[[Path, Path], None]) -> bool:
    """Build the archive in this process, unless the archive exists or another process builds one.

    Args:
        archive: of this machine.
        warm_up: (file, folder) -> runs a session that works in the folder, and writes the archive to the file when it ends.

    Returns:
        Whether this process has built it.
    """
    try:
        with building(archive.parent):
            if not archive.is_file():
                _build(archive, warm_up)
                return True
    except Timeout:
        pass
    return False


def _build(archive: Path, warm_up: Callable[[Path, Path], None]) -> None:
    folder = archive.parent
    for killed in folder.glob(f"{_WORK}*"):
        shutil.rmtree(killed, ignore_errors=True)
    (folder / LOG).write_bytes(b"")
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder, ignore_cleanup_errors=True) as work:
        fresh = Path(work) / "classes.jsa"
        try:
            warm_up(fresh, Path(work))
            fresh.replace(archive)
        except Exception:
            archive.with_suffix(_FAILED).write_text(
                f"See {folder / LOG}. A session that starts an hour later tries again; for one that starts sooner, remove this file.\n"
            )
            raise
    _remove_old(folder)


def building(folder: Path) -> FileLock:
    """The lock of the process that builds; acquiring it raises Timeout if another process builds. While it is held, nobody builds."""
    return FileLock(folder / "classes.lock", timeout=0)


def _remove_old(folder: Path) -> None:
    """Delete all but the few archives that were used last, which is safe for a Java that has mapped an older one."""
    for old in sorted(folder.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEEP]:
        old.unlink(missing_ok=True)
    for failed in folder.glob(f"classes-*{_FAILED}"):
        with suppress(FileNotFoundError):
            failed.unlink()
