"""The jars that Spark needs beside its own: Delta's seven, and those by which it reaches a bucket. Fetched once per user, then only a class path.

The first verb that needs Spark fetches Delta's, and so does ``python -m floodmark.engines.spark.setup.jars`` (part of ``make setup`` and ``make test``);
with ``--buckets`` it fetches those for buckets too (13 MB), which no verb fetches by itself.
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
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from filelock import FileLock

from floodmark.core.errors import CapabilityError, SetupError
from floodmark.engines.spark.setup.home import cache_folder, is_linked, link, spark_home
from floodmark.engines.spark.setup.java import find_java
from floodmark.lake.folder.bucket import is_bucket, is_s3


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """Jars that are fetched together.

    Args:
        name: for people.
        folder: name of their folder.
        coordinates: what the resolver is asked for, as in Maven.
        excluded: what the resolver leaves out, as Spark ships it or nothing needs it.
        files: all jars, in a fixed order.
    """

    name: str
    folder: str
    coordinates: tuple[str, ...]
    excluded: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The jars, whether they exist or not."""
        return tuple(cache_folder() / self.folder / name for name in self.files)

    @property
    def missing(self) -> list[str]:
        """Names of the jars that do not exist."""
        return [path.name for path in self.paths if not path.is_file()]


_DELTA, _HADOOP, _AWS = "4.4.0", "3.5.0", "2.35.4"
DELTA = Jars(
    name="Delta",
    folder=f"jars-spark4.2_2.13-delta{_DELTA}",
    coordinates=(f"io.delta:delta-spark_4.2_2.13:{_DELTA}",),
    excluded=("org.*:*", "com.*:*", "commons-*:*", "javax.*:*", "jakarta.*:*", "io.airlift:*", "io.openlineage:*"),
    files=(
        f"delta-spark_4.2_2.13-{_DELTA}.jar",
        f"delta-storage-{_DELTA}.jar",
        f"delta-kernel-api-{_DELTA}.jar",
        f"delta-kernel-defaults-{_DELTA}.jar",
        f"delta-kernel-unitycatalog-{_DELTA}.jar",
        "unitycatalog-client-0.6.0.jar",
        "unitycatalog-hadoop-0.6.0.jar",
    ),
)
_PARTS = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
)
"""Of Amazon's SDK: S3, and what it needs."""
S3 = Jars(
    name="S3",
    folder=f"jars-hadoop{_HADOOP}-aws{_AWS}",
    coordinates=(
        f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
        *(f"software.amazon.awssdk:{name}:{_AWS}" for name in ("s3", "s3-transfer-manager", "sts")),
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
    # the bundle has all of Amazon's services, in 600 MB; Spark has the others
    excluded=(
        "software.amazon.awssdk:bundle",
        *("io.netty:*", "org.slf4j:*", "org.apache.httpcomponents:*", "commons-codec:*", "commons-logging:*"),
    ),
    files=(
        f"hadoop-aws-{_HADOOP}.jar",
        *(f"{name}-{_AWS}.jar" for name in _PARTS),
        "eventstream-1.0.1.jar",
        "reactive-streams-1.0.4.jar",
        "analyticsaccelerator-s3-1.3.1.jar",
        "wildfly-openssl-2.2.5.Final.jar",
    ),
)
"""The client of S3 for Hadoop 3.5, which is in Spark 4.2, and the parts of Amazon's SDK that it uses."""
_RESOLVE_SECONDS = 300


def class_path() -> tuple[Path, ...]:
    """Delta's jars, and those for buckets where they were fetched, in a fixed order.

    Raises:
        SetupError: SETUP-002, Delta's jars were not fetched yet.
    """
    if missing := DELTA.missing:
        got = f"{len(missing)} missing, first {missing[0]}"
        fix = "Run `python -m floodmark.engines.spark.setup.jars` once with the network on."
        where = f"Delta jars in {cache_folder() / DELTA.folder}"
        raise SetupError(where, f"{len(DELTA.files)} jars", got, fix, code="SETUP-002")
    return (*DELTA.paths, *of_buckets())


def of_buckets() -> tuple[Path, ...]:
    """The jars for buckets, in a fixed order; none where they were not fetched."""
    return () if S3.missing else S3.paths


def check_bucket(root: str) -> None:
    """Make sure that Spark can reach a lake: a bucket needs jars of its own, which no verb fetches.

    Raises:
        CapabilityError: CAPABILITY-046, a store other than S3.
        SetupError: SETUP-090, the jars for buckets were not fetched.
    """
    if not is_bucket(root):
        return
    if not is_s3(root):
        fix = "Use the embedded engine there: --engine embedded, or FLOODMARK_ENGINE=embedded."
        raise CapabilityError(f"lake {root}", "a bucket of S3 for Spark", "another store", fix, code="CAPABILITY-046")
    if missing := S3.missing:
        got = f"{len(missing)} of {len(S3.files)} missing, first {missing[0]}"
        fix = (
            "Run `python -m floodmark.engines.spark.setup.jars --buckets` once with the network on (13 MB). "
            "The embedded engine needs no jars: --engine embedded."
        )
        raise SetupError(f"lake {root}", "the jars by which Spark reaches a bucket", got, fix, code="SETUP-090")


def fetched() -> bool:
    """Whether all of Delta's jars exist."""
    return not DELTA.missing


def fetch(jars: Jars = DELTA) -> None:
    """Fetch jars, once per user: a minute at most. Returns at once if they exist, also where this user may not write.

    Raises:
        SetupError: SETUP-001 no Java, SETUP-003 the resolver failed, SETUP-004 no Spark.
    """
    spark_home()
    find_java()
    if not jars.missing and is_linked(cache_folder()):
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_folder() / "jars.lock"):
        if jars.missing:
            _fetch(jars)
        link(cache_folder())


def _fetch(jars: Jars) -> None:
    with tempfile.TemporaryDirectory(prefix="jars-", dir=cache_folder()) as name:
        work = Path(name)
        _resolve(jars, work)
        ready = work / "ready"
        ready.mkdir()
        for jar in jars.files:
            resolved = next((work / "ivy" / "jars").glob(f"*_{jar}"), None)
            if resolved is None:
                raise _resolver_error(jars, f"no {jar} among what it resolved")
            shutil.copyfile(resolved, ready / jar)
        target = cache_folder() / jars.folder
        shutil.rmtree(target, ignore_errors=True)
        ready.rename(target)


def _resolve(jars: Jars, work: Path) -> None:
    """Run spark-submit with an empty program, which puts the resolved jars into ``ivy/jars``."""
    program = work / "empty.py"
    program.touch()
    command = [*_spark_submit(jars, work), str(program)]
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
        raise _resolver_error(jars, f"nothing within {_RESOLVE_SECONDS} s") from error
    if done.returncode != 0:
        problems = [
            line.strip()
            for line in done.stderr.splitlines()
            if "UNRESOLVED" in line or "not found" in line or "Exception" in line
        ]
        raise _resolver_error(jars, "; ".join(problems[:3]) or f"exit status {done.returncode}")


def _spark_submit(jars: Jars, work: Path) -> list[str]:
    settings = Path.home() / ".ivy2" / "ivysettings.xml"
    packages, excluded = ",".join(jars.coordinates), ",".join(jars.excluded)
    return [
        str(find_java().binary),
        *("-cp", str(spark_home() / "jars" / "*")),
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[1]", "--packages", packages, "--exclude-packages", excluded),
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


def _resolver_error(jars: Jars, got: str) -> SetupError:
    fix = "Check the network, or name your Maven mirror in DEFAULT_ARTIFACT_REPOSITORY=https://..., and run it again."
    expected = f"{', '.join(jars.coordinates)} from Maven Central or your mirror"
    return SetupError(f"{jars.name} jars", expected, got, fix, code="SETUP-003")


def main() -> None:
    """Fetch the jars, with ``--buckets`` those for buckets too, and print the time if any were missing."""
    for jars in (DELTA, S3) if "--buckets" in sys.argv[1:] else (DELTA,):
        begun, are_missing = time.monotonic(), bool(jars.missing)
        try:
            fetch(jars)
        except SetupError as error:
            sys.exit(str(error))
        if are_missing:
            sys.stdout.write(f"fetched the {jars.name} jars: {time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
