"""A supervisor that looks at no rollout, so that a test does: python rollout_process.py HOME STORE."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from floodmark.control.store import Store
from floodmark.control.supervisor import Supervisor

if __name__ == "__main__":
    home, url = sys.argv[1:]
    Supervisor(store=Store(url), home=Path(home), holder="test").run(threading.Event())
