"""The control plane in processes of their own that a test may kill or stop: python control_process.py supervise|upgrade|rollback|savepoint LAKE ROOT [NAME].

Its leases and patience are those of a test.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from action_process import fleet
from lifecycle_process import TOTALS, WIDER

from floodmark.control.processes import supervisor
from floodmark.control.state import store as control_store
from floodmark.control.state.records import Driver
from floodmark.control.streams import actions, turns
from floodmark.control.streams.verification import Verification
from floodmark.lake.restore import savepoints
from floodmark.spec.assets.restart import Restart

DRIVER = Path(__file__).parent.parent / "support" / "local_driver.py"
LEASE_SECONDS = 1.5
KILLED = Restart.exponential("50 ms", budget=None)
"""Kills are what this is about."""
PATHS = os.environ.get("PYTHONPATH", "")
"""The driver is the test's, not the package's."""


def main(action: str, lake: str, root: str, *names: str) -> None:
    """Do it."""
    supervisor.LEASE_SECONDS = turns.LEASE_SECONDS = LEASE_SECONDS
    supervisor.SILENT_SECONDS, supervisor.GRACE_SECONDS, supervisor.POLL_SECONDS = 3.0, 5.0, 0.05
    control_store._PATIENCE_SECONDS = 10
    version = {one.version: one for one in (TOTALS, WIDER)}
    match action:
        case "supervise":
            streams = fleet(Path(root), lake, TOTALS)

            def command(driver: Driver) -> list[str]:
                program = [sys.executable, str(DRIVER), streams.store.url, str(driver.id)]
                return [
                    "env",
                    f"PYTHONPATH={PATHS}",
                    *program,
                    "floodmark.control.processes.driver",
                    str(streams.home / "packages"),
                    root,
                ]

            one = supervisor.Supervisor(
                store=streams.store, home=streams.home, holder=f"{os.getpid()}", command=command, restart=KILLED
            )
            one.run(threading.Event())
        case "upgrade":
            streams = fleet(Path(root), lake, version[names[0]])
            _, found = actions.upgrade(streams, version[names[0]], verification=Verification(patience=30, soak=0.2))
            sys.stdout.write(f"{found.step if found else 'nothing to do'}\n")
        case "rollback":
            streams = fleet(Path(root), lake, TOTALS)
            _, found = actions.roll_back(streams, savepoints.find(streams.lake, names[0]))
            sys.stdout.write(f"{found.step}\n")
        case "savepoint":
            sys.stdout.write(f"{savepoints.create('totals', fleet(Path(root), lake, TOTALS).lake).manifest.id}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
