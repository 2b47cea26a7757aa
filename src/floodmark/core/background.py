"""Processes in the background, which go on when the process that has begun them ends, and their logs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def begin(
    command: Sequence[str], *, log: Path, folder: Path, environment: Mapping[str, str], largest: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, without input. What it prints goes to a log.

    Args:
        command: of the process.
        log: file of the log.
        folder: its current folder.
        environment: its environment.
        largest: size of the log, bytes, above which it is truncated first; None: never.

    Raises:
        OSError: it cannot be started, or its log cannot be written.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    truncated = largest is not None and tail(log, 0)[1] > largest
    with log.open("wb" if truncated else "ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def tail(log: Path, largest: int, *, since: int | None = None) -> tuple[str, int]:
    """The end of a log. Another process may write, truncate or remove the log at any time.

    Args:
        log: file of the log.
        largest: size of the part that is read where ``since`` is None, bytes.
        since: byte at which the part begins that is read.

    Returns:
        (text, in UTF-8, with a substitute for what is not; size of the file, bytes); ``("", 0)`` if there is no file.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - largest) if since is None else since)
            return file.read(max(0, size - file.tell())).decode("utf-8", "replace"), size
    except FileNotFoundError:
        return "", 0


def with_package(package: Path) -> dict[str, str]:
    """This process's environment for one that imports the code of a package."""
    paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths}
