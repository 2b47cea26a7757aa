"""The supervisor of a host that stands by: python failover_process.py ROOT [LEASE_SECONDS SILENT_SECONDS]."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from floodmark.control.processes import supervisor as supervising
from floodmark.control.processes.package import load
from floodmark.control.streams.fleet import Fleet


def main(root: Path, *times: str) -> None:
    """Stand by until SIGTERM."""
    if times:
        supervising.LEASE_SECONDS, supervising.SILENT_SECONDS = map(float, times)
    fleet = Fleet(workspace=load(root, "dev", str(root), str(root / "lake")), root=root, say=say)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    say("stands by")
    supervising.supervisor(fleet.store, fleet.home, say).stand_by(stop)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its log


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
