"""A workspace of floodmark, as Airflow reaches it: its folder, its settings, the program that acts on it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow.sdk import Asset

from floodmark_airflow.errors import error_of


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A workspace of floodmark.

    Args:
        folder: its root, as the workers (and, for a deferrable sensor, the triggerer) see it.
        environment: whose settings count, ``dev`` or ``prod``.
        lake: root of the tables; None: that of the settings.
        program: path of ``floodmark``; None: ``.venv/bin/floodmark`` of the folder if it is there, else the one on the PATH. It needs none of
            Airflow's packages, and Airflow none of its.
    """

    folder: str
    environment: str = "dev"
    lake: str | None = None
    program: str | None = None

    def command(self, *words: str) -> list[str]:
        """A verb and its options -> the whole command, which prints one JSON document."""
        lake = () if self.lake is None else ("--lake", self.lake)
        return [self._program, "--json", "--environment", self.environment, *lake, *words]

    @cached_property
    def _program(self) -> str:
        own = Path(self.folder) / ".venv" / "bin" / "floodmark"
        program = self.program or (str(own) if own.exists() else shutil.which("floodmark"))
        if program is None:
            msg = (
                f"no floodmark: neither {own} nor one on the PATH. Install it there, or name it: Workspace(program=...)"
            )
            raise FileNotFoundError(msg)
        return program

    def ask(self, *words: str) -> dict[str, Any]:
        """The document of a verb that answers at once.

        Raises:
            VerbError: the verb failed; its text says where, what was expected, what there was, and what to do.
        """
        done = subprocess.run(self.command(*words), cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise error_of(done.returncode, done.stdout, done.stderr)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def asset(self, table: str) -> Asset:
        """The table of a source or an output, as an asset. Its events have the names of asset partitions as ``partition_key``."""
        return Asset(name=table, uri=f"floodmark://{Path(self.folder).as_posix()}/{table}", group="floodmark")
