"""A verb as a process of its own, which outlives the worker that started it; another worker on the machine finds it by its folder."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from floodmark_airflow.errors import error_of

State = Literal["running", "succeeded", "failed", "died"]

_SHELL = 'echo $$ > pid; cd "$1"; shift; job=$1; shift; "$@" > "$job/out" 2> "$job/log"; echo $? > "$job/status.new"; mv "$job/status.new" "$job/status"'
"""Runs a command in a folder; its exit status is written once it is known, and whole."""


@dataclass(frozen=True)
class Job:
    """A started verb.

    Args:
        folder: what it prints, its exit status, and the lock its process holds as long as it lives.
    """

    folder: Path

    @classmethod
    def start(cls, folder: Path, command: Sequence[str], *, cwd: str) -> Job:
        """Start a command in a session of its own.

        Args:
            folder: for the job's files; must not exist.
            command: its words.
            cwd: folder to run it in.
        """
        folder.mkdir(parents=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # the process inherits the lock, and ends it by its own end, however it ends
            subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "floodmark", cwd, str(folder), *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
            )
        return cls(folder)

    @property
    def state(self) -> State:
        """``died``: ended without an exit status, as a machine's restart or ``kill -9`` ends it."""
        ended = not self._lives
        status = self._status
        if status is None:
            return "died" if ended else "running"
        return "failed" if status else "succeeded"

    @property
    def _lives(self) -> bool:
        try:
            with (self.folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    @property
    def _status(self) -> int | None:
        try:
            return int((self.folder / "status").read_text())
        except FileNotFoundError:
            return None

    def said(self, offset: int = 0) -> tuple[str, int]:
        """(byte offset) -> (whole lines of its log from there on, the next offset)."""
        try:
            with (self.folder / "log").open("rb") as log:
                log.seek(offset)
                new = log.read()
        except FileNotFoundError:
            return "", offset
        whole = new[: new.rfind(b"\n") + 1]
        return whole.decode("utf-8", "replace"), offset + len(whole)

    @property
    def result(self) -> dict[str, Any]:
        """The document it has printed.

        Raises:
            VerbError: it has failed, or died.
        """
        printed = _text(self.folder / "out")
        if self.state != "succeeded":
            raise error_of(-1 if self._status is None else self._status, printed, _text(self.folder / "log"))
        document: dict[str, Any] = json.loads(printed)
        return document

    def stop(self) -> None:
        """Ask it to stop, as Ctrl-C does: a stream stops at its next micro-batch boundary, a bounded run leaves nothing behind."""
        if self._lives and (pid := _text(self.folder / "pid").strip()):
            os.killpg(int(pid), signal.SIGINT)


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.exists() else ""
