"""The class archive (AppCDS): Java's loaded classes, kept in a file so that a session starts in about half the time.

Java uses an archive only if version, flags and class path are what it was built with, so all of them are in its name: one
that does not fit is never found, and a session starts without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from floodmark.core.errors import SetupError
from floodmark.engines.spark.setup.java import find_java

LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:-UsePerfData")
"""A local session is small: one collector thread, no second compiler. Java then keeps 48 MB for compiled code, which Spark fills within a minute;
after that nothing is compiled any more."""

_KEEP = 4
_BUILD_SECONDS = 300


def spark_home() -> Path:
    """The Spark inside the installed pyspark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("Python", "pyspark installed", "none", "Run `pip install pyspark==4.2.0`.", code="SETUP-004")
    return Path(spec.origin).parent


def home(folder: Path) -> Path:
    """The Spark that sessions of this machine start: links to the installed one, or that itself where nothing is linked yet.

    Of its Python there is no link: it is zipped, without compiled modules, and every worker would compile it anew, for half a second. They
    import the installed pyspark instead.
    """
    linked = _linked(folder)
    return linked if linked.is_dir() else spark_home()


def link(folder: Path) -> None:
    """Make the links of ``home``; remove those to a Spark that is gone."""
    for old in folder.glob("home-*"):
        if not (old / "jars").exists():
            shutil.rmtree(old)
    if not _linked(folder).is_dir():
        with tempfile.TemporaryDirectory(prefix="linking-", dir=folder, ignore_cleanup_errors=True) as work:
            made = Path(work) / "home"
            made.mkdir()
            for entry in spark_home().iterdir():
                if entry.name != "python":
                    (made / entry.name).symlink_to(entry)
            made.rename(_linked(folder))


def _linked(folder: Path) -> Path:
    return folder / f"home-{hashlib.sha256(str(spark_home()).encode()).hexdigest()[:12]}"


def path(folder: Path, jars: Sequence[Path]) -> Path:
    """The archive for this Java, these flags and this class path, whether it is there or not."""
    java = find_java()
    seed = hashlib.sha256("\n".join((str(java.home), java.version, str(home(folder)), *LEAN)).encode())
    for jar in (*jars, *sorted((spark_home() / "jars").glob("*.jar"))):
        stat = jar.stat()
        seed.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return folder / f"classes-java{java.version}-{seed.hexdigest()[:12]}.jsa"


def options(folder: Path, jars: Sequence[Path]) -> tuple[str, ...]:
    """Java options that use the archive, or only the lean ones when there is none."""
    archive = path(folder, jars)
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return (*LEAN, *(shared if archive.is_file() else ()))


def build(folder: Path, jars: Sequence[Path]) -> None:
    """Run the representative program once and keep the classes it loaded; drop all but the newest few archives.

    Raises:
        SetupError: SETUP-005, the program failed.
    """
    target = path(folder, jars)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=folder, ignore_cleanup_errors=True) as work:
        fresh = Path(work) / "classes.jsa"
        command = [sys.executable, "-m", "floodmark.engines.spark.session.warmup", str(fresh), work]
        log = _run(command)
        if not fresh.is_file():
            raise _build_error(log)
        fresh.replace(target)
    for old in sorted(folder.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEEP]:
        old.unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _build_error(f"nothing within {_BUILD_SECONDS} s") from error
    if done.returncode != 0:
        raise _build_error(done.stderr)
    return done.stdout + done.stderr


def _build_error(log: str) -> SetupError:
    got = " / ".join(log.strip().splitlines()[-3:]) or "no output"
    fix = "Run `python -m floodmark.engines.spark.session.warmup /tmp/x.jsa /tmp/x` to see all of its output."
    return SetupError("class archive", "the warm-up program to run to its end", got, fix, code="SETUP-005")
