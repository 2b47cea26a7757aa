"""The unbounded half of the demo: `floodmark run` in a process of its own, killed in the middle and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.places import Places, Progress
from demo.tables import commits
from floodmark.core.errors import ExecutionError
from floodmark.spec.workspace import Engine

FILES_PER_BATCH: dict[Engine, int] = {"spark": 14, "embedded": 4}
"""The year's 54 landing commits become 4 micro-batches, or 14 where one takes less than a second."""
_KILL_AFTER_COMMITS: dict[Engine, int] = {"spark": 2, "embedded": 5}
_INTO_THE_BATCH_SECONDS: dict[Engine, float] = {"spark": 0.4, "embedded": 0.03}
PROGRAM = (sys.executable, "-m", "floodmark.cli.main")
WATCHED = "hourly_departures"
"""The operator whose run is killed in the middle; the first of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What the unbounded runs came to.

    Args:
        killed_after: commits of the watched output when the first process was killed; None when it was done before.
        runs: of the second process, as ``floodmark run --json`` says them.
        micro_batches: per operator, both processes together, as far as the first one said them.
        seconds: both processes.
    """

    killed_after: int | None
    runs: tuple[dict[str, Any], ...]
    micro_batches: dict[str, int]
    seconds: float


class Follower:
    """Runs operators unbounded until caught up on an engine, through one kill."""

    def __init__(self, places: Places, progress: Progress, operators: Sequence[str], engine: Engine) -> None:
        self._places, self._progress, self._operators, self._engine = places, progress, operators, engine
        self._processes: list[_Process] = []
        self._cancelled = False

    def follow(self) -> Followed:
        """Start, kill, start again, and wait for the end.

        Raises:
            ExecutionError: EXECUTION-080, the process ended with an error.
        """
        begun = time.monotonic()
        first = self._start()
        killed_after = self._kill_in_the_middle(first)
        done = first if killed_after is None else self._start()
        document = done.result()
        batches = {run["operator"]: run["micro_batches"] for run in document["runs"]}
        if killed_after is not None:
            batches[WATCHED] += first.micro_batches
        seconds = time.monotonic() - begun
        return Followed(killed_after=killed_after, runs=tuple(document["runs"]), micro_batches=batches, seconds=seconds)

    def cancel(self) -> None:
        """Kill what runs and start nothing more; for another thread."""
        self._cancelled = True
        for process in self._processes:
            process.kill()

    def _start(self) -> _Process:
        self._processes.append(_Process(self._places, self._progress, self._operators, self._engine))
        if self._cancelled:
            self.cancel()
        return self._processes[-1]

    def _kill_in_the_middle(self, process: _Process) -> int | None:
        """Commits of the watched output at the kill; None when the process was done before."""
        table = self._places.ran(self._engine, "unbounded").output(WATCHED)
        while process.running:
            if commits(table) >= _KILL_AFTER_COMMITS[self._engine]:
                time.sleep(_INTO_THE_BATCH_SECONDS[self._engine])
                process.kill()
                self._progress.note(
                    f"{self._engine} killed (SIGKILL) after {commits(table)} commits of {WATCHED}; starting again"
                )
                return commits(table)
            time.sleep(0.01)
        return None


class _Process:
    """One `floodmark run OPERATORS --unbounded --until-caught-up`; its stderr is passed on."""

    def __init__(self, places: Places, progress: Progress, operators: Sequence[str], engine: Engine) -> None:
        verb = [
            "run",
            *operators,
            "--unbounded",
            "--until-caught-up",
            "--files-per-batch",
            str(FILES_PER_BATCH[engine]),
        ]
        where = ["--engine", engine, "--lake", places.ran(engine, "unbounded").root, "--json"]
        command = [*PROGRAM, *verb, *where]
        environment = {**os.environ, "FLOODMARK_LOGS": places.landed.root, "FLOODMARK_DIVIDED": "false"}
        self.micro_batches = 0
        self._progress = progress
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            command,
            cwd=places.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that the kill takes Java and the Python workers along
        )
        self._reader = threading.Thread(target=self._pass_on, name="follower-stderr", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to all of it, if it still runs."""
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=10)

    def result(self) -> dict[str, Any]:
        """Wait for the end; the document it printed."""
        try:
            text = self._process.stdout.read() if self._process.stdout else ""
            status = self._process.wait()
            self._reader.join(timeout=10)
        finally:
            self.kill()
        if status != 0:
            got = "; ".join([text.strip(), *self._errors[-3:]]).strip("; ")
            fix = f"See what it printed above, or start it by hand in {Path.cwd()}."
            raise ExecutionError(
                "the unbounded process", "status 0", f"status {status}: {got}", fix, code="EXECUTION-080"
            )
        document: dict[str, Any] = json.loads(text)
        return document

    def _pass_on(self) -> None:
        for line in self._process.stderr or ():
            self.micro_batches += line.startswith("  micro-batch ")
            self._errors.append(line.rstrip())
            self._progress.note(f"  | {line.rstrip()}")
