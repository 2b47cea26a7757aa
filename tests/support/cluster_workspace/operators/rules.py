"""What the operators' functions call: a helper module, which reads a file that lies beside it."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def airlines() -> Mapping[str, str]:
    """Code of an airline -> its name."""
    with (Path(__file__).parent / "data" / "airlines.csv").open(newline="") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def named(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A departure that took place, with the name of its airline."""
    ambush()
    if row["delay"] is not None:
        name = airlines().get(row["carrier"], "?")
        yield {"airline": name, "origin": row["origin"], "delay": row["delay"]}


def is_behind(delay: int) -> bool:
    """True for a departure half an hour or more behind."""
    return delay >= 30


def ambush() -> None:
    """Kill what a file in the shared folder names: the executor that computes this row, or its worker. Once."""
    order = Path(os.environ.get("AMBUSH", "/nowhere"))
    try:
        victim = order.read_text()
        order.unlink()
    except OSError:
        return
    executor = _parent(_parent(os.getpid()))  # a daemon of Python's forks what computes, and Java starts the daemon
    pid = executor if victim == "executor" else _parent(executor)
    order.with_name(f"{victim}.killed").write_text(str(pid))
    os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
