"""``floodmark`` as a program for a shell, forked: what most verbs import is imported once, before the first command.

``folder`` has the program, for the front of a ``PATH``. It hands its arguments, variables, folder and open files to a server, which forks; it ends as the
forked process ends, and passes signals on. A killed program takes the forked process with it. The server has one thread, and ends with the process of the tests.
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
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import forked
import forks_alone

PROGRAM = Path(sys.executable).parent / "floodmark"
"""The one that is installed."""
_FILES = 3
"""Standard input, output and error."""
_LAUNCHER = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect("{address}")
asked = dict(command=["{program}", *sys.argv[1:]], env=dict(os.environ), cwd=os.getcwd())
text = json.dumps(asked).encode() + b"\\n"
sent = socket.send_fds(server, [text], [0, 1, 2])
server.sendall(text[sent:])
answers = server.makefile()
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(answers.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def folder() -> str:
    """The folder of the program; that of the one that is installed where a library does not take a fork."""
    if sys.platform != "linux":
        return str(PROGRAM.parent)
    made = Path(mkdtemp(prefix="floodmark-verbs-"))
    address, program = made / "server", made / "bin" / "floodmark"
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | forks_alone.ALONE,
    )
    atexit.register(_gone, server, made)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    program.parent.mkdir()
    program.write_text(_LAUNCHER.format(python=sys.executable, address=address, program=PROGRAM))
    program.chmod(0o755)
    return str(program.parent)


def _gone(server: subprocess.Popen[str], made: Path) -> None:
    server.kill()
    server.wait()
    for path in sorted(made.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    made.rmdir()


def _serve(address: str) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process for each connection; in it, what it is to do and its files; None once the process of the tests is gone."""
    for name in forked.IMPORTED:
        import_module(name)
    forks_alone.check()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        waiting = [listener, sys.stdin, *running, *(connection for _, connection in running.values())]
        ready, _, _ = select.select(waiting, [], [])
        for descriptor, (pid, connection) in list(running.items()):
            if descriptor in ready:
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                connection.close()
                os.close(descriptor)
                del running[descriptor]
            elif connection in ready:  # the program was killed
                os.kill(pid, signal.SIGKILL)
        if sys.stdin in ready:
            return None
        if listener in ready:
            connection, _ = listener.accept()
            asked, files = _asked(connection)
            pid = os.fork()
            if pid == 0:
                listener.close()
                return asked, files
            for file in files:
                os.close(file)
            connection.sendall(f"{pid}\n".encode())
            running[os.pidfd_open(pid)] = pid, connection


def _asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    text, files, _, _ = socket.recv_fds(connection, 1 << 16, _FILES)
    while not text.endswith(b"\n"):
        text += connection.recv(1 << 16)
    asked: dict[str, Any] = json.loads(text)
    return asked, files


if __name__ == "__main__":
    base_path = forked.base_path()
    what = _serve(sys.argv[1])
    if what is not None:
        about, streams = what
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for file in (sys.stdout, sys.stderr):  # both may be one pipe, whose reader wants them in their order
            file.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        forked.end(forked.status(forked.settle(about, base_path)))
