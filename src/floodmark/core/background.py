"""Processes in the background: they go on when the process that has begun them ends."""

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
    truncated = largest is not None and log.exists() and log.stat().st_size > largest
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


def with_package(package: Path) -> dict[str, str]:
    """This process's environment for one that imports the code of a package."""
    paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths}
