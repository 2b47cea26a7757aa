"""Streams whose processes are killed with SIGKILL again and again, at drawn points and instants: in the end every row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import forked
import psutil
import pytest
from events import disorder
from processes import paths
from seeds import seed_of
from streams import STREAMS, check

from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

PROGRAM = Path(__file__).with_name("stream_process.py")
SECONDS = (0.0, 1.0)
"""From its server on, in which a process takes its first micro-batch or many."""
Victim = Literal["point", "driver", "server"]


class Killed:
    """A stream in processes that are killed.

    Args:
        lake: it runs in.
        code: of the stream.
        draw: points and instants.
    """

    def __init__(self, lake: Lake, code: Operator, draw: random.Random) -> None:
        self.lake, self.code, self.draw = lake, code, draw
        self.points = crash.POINTS["embedded"]
        if any(output.current for output in code.outputs):
            self.points += ("micro_batch.before_current", "micro_batch.after_current")
        self.kills: dict[Victim, int] = {"point": 0, "driver": 0, "server": 0}
        self.told: list[str] = []

    def run(self, victim: Victim | None, at: str = "") -> None:
        """A process that catches up, unless it is killed, at a point that is drawn where none is named; a server that is killed costs it a retry, or its start."""
        drawn = f"{self.draw.choice(self.points)}:{self.draw.choice((1, 1, 2, 3))}" if victim == "point" else ""
        point = at or drawn
        environment = {**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: point}
        command = [sys.executable, str(PROGRAM), self.lake.root, self.code.name]
        process = forked.begin(command, env=environment, stderr=subprocess.PIPE, text=True)
        instant = self.draw.uniform(*SECONDS)
        lost = False
        if victim in {"driver", "server"}:
            self._begun(process)
            try:
                process.wait(instant)
            except subprocess.TimeoutExpired:
                lost = self._lose_server(process.pid) if victim == "server" else False
                if victim == "driver":
                    process.kill()
        _, said = process.communicate(timeout=300)
        self.told.append(f"{victim} {point or round(instant, 2)}: {process.returncode}")
        if process.returncode == -signal.SIGKILL and victim in {"point", "driver"}:
            self.kills[victim] += 1
            return
        assert process.returncode == 0 or (lost and "EXECUTION-070" in said), (self.told, said[-3000:])
        self.kills["server"] += lost

    @classmethod
    def _begun(cls, process: subprocess.Popen[str]) -> None:
        """Wait until a process has a server, or has ended; the machine may be busy."""
        while not cls._servers(process.pid):
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            return

    @classmethod
    def _lose_server(cls, pid: int) -> bool:
        """Kill the server of a process; False where it has none."""
        servers = cls._servers(pid)
        for server in servers:
            server.kill()
        return bool(servers)

    @staticmethod
    def _servers(pid: int) -> list[psutil.Process]:
        try:
            children = psutil.Process(pid).children()
            return [one for one in children if any("child.py" in word for word in one.cmdline())]
        except psutil.Error:  # one has just ended
            return []


def killed(stream: Killed, log: Log, kills: int) -> None:
    """Rows come in small commits while the stream is killed so many times, or until there are no more; then in peace the rest."""
    read, draw = 0, stream.draw
    while sum(stream.kills.values()) < kills and read < len(log.entries) - 1:
        if read == 0 or draw.random() < 0.8:
            for _ in range(draw.randrange(1, 4)):
                last = min(read + draw.randrange(1, 12), len(log.entries) - 1)
                land(stream.lake, stream.code, log, read, last)
                read = last
                time.sleep(0.002)  # files of one millisecond have no order
        stream.run(draw.choice(("point", "point", "driver", "driver", "server")))
    assert sum(stream.kills.values()) >= 3, stream.kills
    land(stream.lake, stream.code, log, read)
    stream.run(None)


SOAK = [
    pytest.param(name, 20, None, marks=pytest.mark.soak, id=f"{name}-{number}")
    for number in range(2)
    for name in ("windowed", "watched", "paired", "matched", "visits", "once", "patterned", "judged")
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "kills", "seed"),
    [
        ("windowed", 3, 5),
        pytest.param("matched", 3, 5, marks=pytest.mark.feature("J6", "C3")),
        pytest.param("patterned", 3, 5, marks=[pytest.mark.soak, pytest.mark.feature("C3")]),
        *SOAK,
    ],
)
@pytest.mark.few(1)
def test_killed_again_and_again_every_row_is_there_once(
    lake: Lake,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    name: str,
    kills: int,
    seed: int | None,
) -> None:
    """Three kills; ``make soak`` draws up to two hundred others."""
    seed = int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))
    code = STREAMS[name]
    stream, log = Killed(lake, code, random.Random(seed)), disorder(code, seed, 400)
    try:
        killed(stream, log, kills)
        check(lake, code, log)
    except AssertionError as error:
        told = "\n".join(stream.told)
        raise AssertionError(f"replay {name} with FLOODMARK_SEED={seed}\n{told}\n{error}") from error
    sys.stdout.write(f"killed: {stream.kills}\n")
    for victim, count in stream.kills.items():
        record_property(victim, count)
