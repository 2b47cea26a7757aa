"""The workers of a cluster: what is installed there is checked once per application, and which folders they see before these are used.

A worker is a host, or a container, with executors of the application. It sees no file of the driver but on disks that both mount.
"""

from __future__ import annotations

import json
import platform
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.core.errors import ConnectorError, SetupError
from floodmark.engines.landing.lander import reader_of
from floodmark.engines.spark.session import tasks
from floodmark.engines.spark.session import workers as ready
from floodmark.lake.folder import bucket
from floodmark.lake.folder.bucket import MARK, is_bucket
from floodmark.lake.folder.paths import Lake, is_local
from floodmark.spec.rows.source import Source

_INSTALLED = ("floodmark", "pyarrow")
"""Packages that workers need in the driver's version."""
_ROUNDS = 3
_FILES = 3
"""Files of a source that workers are asked for."""
_MARK = b"seen"
_asked: set[tuple[str, str]] = set()
"""(application, subject) of what workers were asked once."""
_NO_PYTHON = re.compile(r"""Cannot run program "([^"]+)"[^\n]*""")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\][^\n]*?(\d+\.\d+)")
_HOST = re.compile(r"\(TID \d+\) \(([^ )]+) executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What one executor has said of itself.

    Args:
        host: name of the host.
        folder: working folder of the executor, which no other executor has.
        program: its Python.
        versions: package, or ``Python``, -> version; no entry where there is none.
        seen: what it says of the files it was asked for.
    """

    host: str
    folder: str
    program: str
    versions: Mapping[str, str]
    seen: Mapping[str, str]


def check(spark: SparkSession | SparkContext) -> None:
    """Make sure that every worker has the driver's Python, floodmark and pyarrow. All workers have then started the process that others are forked from.

    Args:
        spark: session, or its context.

    Raises:
        SetupError: SETUP-080, a worker has another version of one; SETUP-081, a worker's Python does not start.
    """
    if not _first(spark, ""):
        return
    try:
        workers = _ask(spark, [])
    except (PySparkException, Py4JError) as error:
        refusal = refused(tasks.python(spark), str(error))
        if refusal is None:
            raise
        raise refusal from error
    for worker in workers:
        check_versions(worker)
    if isinstance(spark, SparkContext):
        ready.note(spark)


def versions() -> dict[str, str]:
    """What this process has, and workers need: ``Python`` or a package -> version."""
    return {"Python": _minor(), **{name: version(name) for name in _INSTALLED}}


def check_versions(worker: Worker) -> None:
    """Raise SetupError SETUP-080 if a worker has another version than this process."""
    expected = versions()
    other = {name: worker.versions.get(name) for name, text in expected.items() if worker.versions.get(name) != text}
    if not other:
        return
    packages = " ".join(f"{name}=={expected[name]}" for name in other if name != "Python")
    raise SetupError(
        f"worker {worker.host}",
        f"{', '.join(f'{name} {expected[name]}' for name in other)}, as the driver has",
        f"{', '.join(f'{name} {text}' if text else f'no {name}' for name, text in other.items())} ({worker.program})",
        f"There: {worker.program} -m pip install {packages}" if packages else _other_python(),
        code="SETUP-080",
    )


def check_lake(spark: SparkSession, root: str) -> None:
    """Make sure that every worker sees the folder of a lake. Asks once per application and lake.

    Args:
        spark: session.
        root: of the lake.

    Raises:
        SetupError: SETUP-085, a worker does not: its rows would be written where the driver does not find them. SETUP-091, a worker does not
            reach the bucket, for whose credentials it has its own environment.
    """
    if not _first(spark, root):
        return
    if is_bucket(root):
        _check_bucket(spark, root)
    if not is_local(root):
        return
    mark = Path(Lake(root).internal(f"seen-by-workers-{uuid.uuid4().hex}"))
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_bytes(_MARK)
    try:
        workers = _ask(spark, [str(mark)])
    finally:
        mark.unlink()
    unseen = [worker.host for worker in workers if worker.seen[str(mark)] != str(len(_MARK))]
    if unseen:
        _asked.discard((tasks.application(spark), root))
        fix = "Put it on a disk that driver and workers mount under one path, or into a bucket: Settings(lake=...) in resources/settings.py, or --lake."
        got = f"none of its files on worker {', '.join(dict.fromkeys(unseen))}"
        raise SetupError(f"lake {root}", "a folder that every worker sees", got, fix, code="SETUP-085")


def _check_bucket(spark: SparkSession, root: str) -> None:
    """Let every worker read a file of a lake in a bucket.

    Raises:
        SetupError: SETUP-091, a worker cannot.
    """

    def answer(_: Iterable[int]) -> Iterator[str]:
        import json as as_json  # noqa: PLC0415 - on the worker
        import socket  # noqa: PLC0415 - as above

        try:
            bucket.stat(f"{root}/{MARK}")
        except OSError as error:
            yield as_json.dumps([socket.gethostname(), str(error)])

    refusals = dict(map(json.loads, tasks.answers(spark, answer)))
    for host, why in refusals.items():
        _asked.discard((tasks.application(spark), root))
        fix = (
            "Start the worker with the variables of the store (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or give its host a role that may read and "
            "write the bucket: floodmark sends no secret to workers."
        )
        raise SetupError(f"worker {host}", f"one that reaches {root}", why, fix, code="SETUP-091")


def check_source(spark: SparkSession, source: Source, workspace: Path) -> None:
    """Make sure that every worker sees the files of a source as this process does.

    Args:
        spark: session.
        source: any; only files and tables on a disk are looked for.
        workspace: the folder relative paths start from.

    Raises:
        ConnectorError: CONNECTOR-210, a worker does not.
    """
    there = reader_of(source, workspace).on_disk(_FILES)
    if there is None:
        return
    folder, files = there.folder, there.files
    for worker in _ask(spark, [folder, *files]):
        if not worker.seen[folder]:
            got = f"no such folder on worker {worker.host}"
        else:
            other = next(((path, size) for path, size in files.items() if worker.seen[path] != str(size)), None)
            if other is None:
                continue
            path, size = other
            seen = f"{worker.seen[path]} bytes" if worker.seen[path] else "none"
            got = f"{path} of {size} bytes here, {seen} on worker {worker.host}"
        fix = (
            "Put the files on a disk that driver and workers mount under one path, or into a bucket, and name it in Files(...); or land on this "
            f"machine alone: floodmark land {source.name} --engine embedded"
        )
        where = f"source '{source.name}', folder {folder}"
        raise ConnectorError(where, "files that every worker sees as the driver does", got, fix, code="CONNECTOR-210")


def _ask(spark: SparkSession | SparkContext, paths: Sequence[str]) -> list[Worker]:
    """What each executor says of itself, and of paths: the size of a file, a text for a folder, an empty one for what is not there.

    Tasks go to all free cores at once; if an executor was busy, or came later, a second round asks it.
    """
    names = list(_INSTALLED)
    asked, known = list(paths), dict[str, Worker]()

    def answer(_: Iterable[int]) -> Iterator[str]:
        # this function travels by value and uses the standard library alone: a worker may have another floodmark, or none
        import json as as_json  # noqa: PLC0415
        import platform as running  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys as python  # noqa: PLC0415
        from importlib import metadata  # noqa: PLC0415 - see above
        from pathlib import Path as Place  # noqa: PLC0415

        versions = {"Python": ".".join(running.python_version_tuple()[:2])}
        for name in names:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        seen = {}
        for path in asked:
            try:
                seen[path] = "folder" if Place(path).is_dir() else str(Place(path).stat().st_size)
            except OSError:
                seen[path] = ""
        facts = {"host": socket.gethostname(), "folder": str(Place.cwd()), "program": python.executable}
        yield as_json.dumps({**facts, "versions": versions, "seen": seen})

    for _ in range(_ROUNDS):
        facts_of_all = map(json.loads, tasks.answers(spark, answer))
        known |= {worker.folder: worker for worker in (Worker(**facts) for facts in facts_of_all)}
        if len(known) >= tasks.workers(spark):
            break
    return list(known.values())


def _first(spark: SparkSession | SparkContext, subject: str) -> bool:
    """True at the first call of an application about a subject."""
    key = tasks.application(spark), subject
    known = key in _asked
    _asked.add(key)
    return not known


def refused(program: str, text: str) -> SetupError | None:
    """The error for a job that no Python of a worker's could begin; None for any other failure.

    Args:
        program: the workers' Python.
        text: of the failure.
    """
    host = match[1] if (match := _HOST.search(text)) else "of the cluster"
    where = f"worker {host}"
    if match := _OTHER_PYTHON.search(text):
        expected, got = f"Python {_minor()}, as the driver has", f"Python {match[1]} ({program})"
        return SetupError(where, expected, got, _other_python(), code="SETUP-080")
    if match := _NO_PYTHON.search(text):
        return SetupError(where, f"Python {_minor()}", f"no program {match[1]}", _other_python(), code="SETUP-081")
    if match := _NO_MODULE.search(text):
        fix = f"There: {program} -m pip install 'floodmark[spark]=={version('floodmark')}'"
        got = f"no module {match[1]} ({program})"
        return SetupError(where, "floodmark and what it needs", got, fix, code="SETUP-081")
    return None


def _minor() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _other_python() -> str:
    return (
        f"Name a Python {_minor()} that every worker has, with floodmark in it: "
        'Settings(spark=(("spark.pyspark.python", "/path/to/python"),)) in resources/settings.py'
    )
