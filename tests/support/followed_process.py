"""A rebuild or a reader in a process of its own, which a test may kill: followed_process.py LAKE rebuild|run VERSION|NAME ENGINE."""

from __future__ import annotations

import sys
from typing import Any, cast

from followed import READERS, totals

from floodmark.control.processes.engine import computing
from floodmark.engines.upgrading import rebuild
from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Engine, Settings


def main(folder: str, action: str, name: str, engine: str) -> None:
    """Rebuild to a version, or run a reader until it has caught up."""
    if engine == "spark":
        from borrowed import borrow

        borrow()
    lake, run = Lake(folder), computing(Settings(memory=300), engine=cast("Engine", engine), app="victim").run_unbounded
    small: dict[str, Any] = {"files_per_batch": 2} if engine == "embedded" else {}
    if action == "rebuild":
        rebuild(run, totals(name), lake)
    else:
        run(READERS[name](), lake, until_caught_up=True, **small)


if __name__ == "__main__":
    main(*sys.argv[1:])
