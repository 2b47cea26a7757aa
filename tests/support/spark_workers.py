"""Processes that Spark starts with each stateful stream, forked: what they import is imported once, before the first of them begins.

Spark lets a Python of its own name the states of a stream, and waits for it: two seconds of imports, for a tenth of one of work. ``launcher`` is
a program that takes the place of the Python Spark starts (``SparkContext.pythonExec``); it has the process of such a stream forked from a
server, and is the Python of the tests for all else. The server has one thread, and ends with the process of the tests.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import forked
import forks_alone

MODULE = "pyspark.sql.streaming.transform_with_state_driver_worker"
_LAUNCHER = """#!{python} -IS
import os, sys
command = sys.argv[1:]
if command != ["-m", "{module}"]:
    os.execv("{python}", ["{python}", *command])
import json, socket
server = socket.socket(socket.AF_UNIX)
server.connect("{place}")
printed = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2)]
asked = dict(command=command, env=dict(os.environ), cwd=os.getcwd(), printed=printed)
server.sendall(json.dumps(asked).encode() + b"\\n")
server.recv(1)  # until the process has ended
"""


@cache
def launcher() -> str:
    """The program; this Python itself where a library does not take a fork."""
    if sys.platform != "linux":
        return sys.executable
    folder = Path(mkdtemp(prefix="floodmark-workers-"))
    place, program = folder / "server", folder / "python"
    command = [sys.executable, str(Path(__file__).resolve()), str(place)]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | forks_alone.ALONE
    )
    atexit.register(_gone, server, folder)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    program.write_text(_LAUNCHER.format(python=sys.executable, module=MODULE, place=place))
    program.chmod(0o755)
    return str(program)


def _gone(server: subprocess.Popen[str], folder: Path) -> None:
    server.kill()
    server.wait()
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()


def _serve(place: str) -> dict[str, Any] | None:
    """Fork a process for each connection; in it, what it is to do; None once the process of the tests is gone."""
    import_module(MODULE)
    forks_alone.check()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        there, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in there:
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _OPEN.append(connection)
            found: dict[str, Any] = json.loads(connection.makefile().readline())
            return found
        connection.close()


_OPEN: list[socket.socket] = []
"""The connection of the launcher, which waits for its end: that of this process."""


if __name__ == "__main__":
    base_path = forked.base_path()
    what = _serve(sys.argv[1])
    if what is not None:
        forked.end(forked.status(forked.become(what, base_path)))
