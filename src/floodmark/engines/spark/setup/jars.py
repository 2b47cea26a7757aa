"""The seven Delta jars that Spark needs beside its own: fetched once per user, then only a class path.

The first verb that needs Spark fetches the jars, and so does ``python -m floodmark.engines.spark.setup.jars`` (part of ``make setup`` and ``make test``).
Spark's own resolver resolves them, so the mirror in ``~/.ivy2/ivysettings.xml``, ``~/.m2/settings.xml`` or
``DEFAULT_ARTIFACT_REPOSITORY`` is used. Spark's other dependencies are excluded: pyspark ships them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from filelock import FileLock

from floodmark.core.errors import SetupError
from floodmark.engines.spark.setup.home import cache_folder, link, spark_home
from floodmark.engines.spark.setup.java import find_java

VERSION = "4.4.0"
COORDINATE = f"io.delta:delta-spark_4.2_2.13:{VERSION}"
JARS = (
    f"delta-spark_4.2_2.13-{VERSION}.jar",
    f"delta-storage-{VERSION}.jar",
    f"delta-kernel-api-{VERSION}.jar",
    f"delta-kernel-defaults-{VERSION}.jar",
    f"delta-kernel-unitycatalog-{VERSION}.jar",
    "unitycatalog-client-0.6.0.jar",
    "unitycatalog-hadoop-0.6.0.jar",
)
_EXCLUDED = ("org.*:*", "com.*:*", "commons-*:*", "javax.*:*", "jakarta.*:*", "io.airlift:*", "io.openlineage:*")
_RESOLVE_SECONDS = 300


def jar_folder() -> Path:
    """The folder of the jars of this version."""
    return cache_folder() / f"jars-spark4.2_2.13-delta{VERSION}"


def class_path() -> tuple[Path, ...]:
    """The seven jars, in a fixed order.

    Raises:
        SetupError: SETUP-002, the jars were not fetched yet.
    """
    jars = tuple(jar_folder() / name for name in JARS)
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        got = f"{len(missing)} missing, first {missing[0]}"
        fix = "Run `python -m floodmark.engines.spark.setup.jars` once with the network on."
        raise SetupError(f"Delta jars in {jar_folder()}", f"{len(JARS)} jars", got, fix, code="SETUP-002")
    return jars


def fetched() -> bool:
    """Whether all seven jars exist."""
    return all((jar_folder() / name).is_file() for name in JARS)


def fetch() -> None:
    """Fetch the jars, once per user: a minute at most. Returns at once if they exist.

    Raises:
        SetupError: SETUP-001 no Java, SETUP-003 the resolver failed, SETUP-004 no Spark.
    """
    spark_home()
    find_java()
    cache_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_folder() / "jars.lock"):
        if not fetched():
            _fetch()
        link(cache_folder())


def _fetch() -> None:
    with tempfile.TemporaryDirectory(prefix="jars-", dir=cache_folder()) as name:
        work = Path(name)
        _resolve(work)
        ready = work / "ready"
        ready.mkdir()
        for jar in JARS:
            resolved = next((work / "ivy" / "jars").glob(f"*_{jar}"), None)
            if resolved is None:
                raise _resolver_error(f"no {jar} among what it resolved")
            shutil.copyfile(resolved, ready / jar)
        shutil.rmtree(jar_folder(), ignore_errors=True)
        ready.rename(jar_folder())


def _resolve(work: Path) -> None:
    """Run spark-submit with an empty program, which puts the resolved jars into ``ivy/jars``."""
    program = work / "empty.py"
    program.touch()
    command = [*_spark_submit(work), str(program)]
    environment = {**os.environ, **_mirror(), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _resolver_error(f"nothing within {_RESOLVE_SECONDS} s") from error
    if done.returncode != 0:
        problems = [
            line.strip()
            for line in done.stderr.splitlines()
            if "UNRESOLVED" in line or "not found" in line or "Exception" in line
        ]
        raise _resolver_error("; ".join(problems[:3]) or f"exit status {done.returncode}")


def _spark_submit(work: Path) -> list[str]:
    settings = Path.home() / ".ivy2" / "ivysettings.xml"
    return [
        str(find_java().binary),
        *("-cp", str(spark_home() / "jars" / "*")),
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[1]", "--packages", COORDINATE, "--exclude-packages", ",".join(_EXCLUDED)),
        *("--conf", f"spark.jars.ivy={work / 'ivy'}"),
        *(("--conf", f"spark.jars.ivySettings={settings}") if settings.is_file() else ()),
    ]


def _mirror() -> dict[str, str]:
    """The mirror of Maven Central in ``~/.m2/settings.xml``, as an environment variable for Spark's resolver."""
    settings = Path.home() / ".m2" / "settings.xml"
    if "DEFAULT_ARTIFACT_REPOSITORY" in os.environ or not settings.is_file():
        return {}
    for mirror in ElementTree.parse(settings).getroot().iterfind(".//{*}mirror"):  # noqa: S314 - the user's own file
        names = [name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")]
        url = mirror.findtext("{*}url")
        if url and any(name in {"central", "*", "external:*"} for name in names):
            return {"DEFAULT_ARTIFACT_REPOSITORY": url.strip().rstrip("/") + "/"}
    return {}


def _resolver_error(got: str) -> SetupError:
    fix = "Check the network, or name your Maven mirror in DEFAULT_ARTIFACT_REPOSITORY=https://..., and run it again."
    return SetupError("Delta jars", f"{COORDINATE} from Maven Central or your mirror", got, fix, code="SETUP-003")


def main() -> None:
    """Fetch the jars, and print the time if any were missing."""
    begun, before = time.monotonic(), fetched()
    try:
        fetch()
    except SetupError as error:
        sys.exit(str(error))
    if not before:
        sys.stdout.write(f"fetched the Delta jars: {time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
