"""A supervisor that looks at no rollout, so that a test does: python rollout_process.py HOME STORE."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.store import Store

if __name__ == "__main__":
    home, url = sys.argv[1:]
    Supervisor(store=Store(url), home=Path(home), holder="test").run(threading.Event())
