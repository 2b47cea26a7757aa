"""Programs of tests as processes that are forked: what most of them import is imported once, before the first of them begins.

``run`` and ``Process`` take the command of ``subprocess``: this Python with a file, ``-m MODULE`` or ``-c TEXT``. The process is one of its own, with its own
arguments, environment, folder and files, that a test may kill; it does without two seconds of imports. ``program`` makes a program of it, for what
starts processes by itself. Java is never forked.

The processes are children of a server, which the first call starts and which ends with the process of the tests. It imports, and does nothing
else: it has one thread, so that what it forks holds no lock of another one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial, partialmethod
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import forks_alone

IMPORTED = (
    "deltalake",
    "duckdb",
    "pandas",
    "psutil",
    "pydantic_settings",
    "pyspark.sql.connect.session",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "sqlalchemy",
    "floodmark.cli.main",
    "floodmark.cli.verbs.run",
    "floodmark.cli.verbs.workspace",
    "floodmark.control.delivery.rollouts",
    "floodmark.control.processes.driver",
    "floodmark.control.processes.upkeep",
    "floodmark.engines.embedded.bounded.run",
    "floodmark.engines.embedded.landing.run",
    "floodmark.engines.embedded.unbounded.run",
    "floodmark.engines.upgrading",
)
MODULES = (
    "floodmark.cli.main",
    "floodmark.control.delivery.rollouts",
    "floodmark.control.processes.driver",
    "floodmark.control.processes.upkeep",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""Programs that ``python`` forks."""
VARIABLE = "FORKED_SERVER"
"""Variable: the address of the server, for a process whose own processes of ``MODULES`` are to be forked too."""
FORKS = sys.platform == "linux"
"""Libraries of macOS do not take a fork."""
_FILES = 3
"""Standard input, output and error."""
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
command, modules = {prefix} + sys.argv[1:], {modules}
if modules and (command[:1] != ["-m"] or command[1] not in modules):
    os.execv("{python}", ["{python}", *command])
server = socket.socket(socket.AF_UNIX)
server.connect("{address}")
asked = dict(command=command, env=dict(os.environ), cwd=os.getcwd(), session=os.getsid(0) == os.getpid(), tied=True)
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


class Process(subprocess.Popen[Any]):
    """A process that is forked, of ``subprocess.Popen``'s arguments and methods; it takes the places where that one starts, and waits for, a child."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, *pipes = rest[:15]
        stdin, _, _, stdout, _, stderr = pipes
        session = rest[20]
        asked = {
            "command": list(args[1:]),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "session": session,
            "tied": False,
        }
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(os.environ.get(VARIABLE) or str(_folder() / "server"))
        text = json.dumps(asked).encode() + b"\n"
        files = [own if given == -1 else given for own, given in enumerate((stdin, stdout, stderr))]
        self._server.sendall(text[socket.send_fds(self._server, [text], files) :])
        self._answers = self._server.makefile()
        self.pid = int(self._answers.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags and not _answers(self._server):
            return 0, 0
        status = int(self._answers.readline())
        self._server.close()
        return self.pid, -status if status < 0 else status << 8  # as the system has it

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _answers(server: socket.socket) -> bool:
    """Whether there is something to read; a file of any number, where ``select.select`` takes those below 1024."""
    ready = select.poll()
    ready.register(server, select.POLLIN)
    return bool(ready.poll(0))


def forking(*modules: str) -> None:
    """From here on this process's own processes are forked where they are ``-m MODULE`` with one of these, by the server that ``VARIABLE`` names."""
    names = ("_execute_child", "_try_wait", "_internal_poll")
    plain = {name: getattr(subprocess.Popen, name) for name in names}

    def chosen(name: str, process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> Any:
        if name == "_execute_child":
            first, *rest = map(str, [arguments[0]] if isinstance(arguments[0], (str, bytes, Path)) else arguments[0])
            process.is_forked = first == sys.executable and rest[:1] == ["-m"] and rest[1] in modules  # type: ignore[attr-defined]
        method = getattr(Process, name) if process.is_forked else plain[name]  # type: ignore[attr-defined]
        return method(process, *arguments, **options)

    for name in names:
        setattr(subprocess.Popen, name, partialmethod(partial(chosen, name)))


def begin(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As ``subprocess.Popen``; this Python is forked where a library takes a fork."""
    assert command[0] == sys.executable, command
    return (Process if FORKS else subprocess.Popen)(list(command), **options)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` with its output captured as text, and nothing on its standard input.

    What the process has started may outlive it, and holds its files: nothing waits for their end.

    Raises:
        subprocess.TimeoutExpired: the process has not ended in time, and was killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        stdout, stderr = (Path(folder, name) for name in ("stdout", "stderr"))
        with stdout.open("w") as out, stderr.open("w") as err:
            process = begin(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.wait()
            late.stdout, late.stderr = stdout.read_text(errors="replace"), stderr.read_text(errors="replace")  # type: ignore[assignment]
            raise
        said = [path.read_text(errors="replace") for path in (stdout, stderr)]
    return subprocess.CompletedProcess(list(command), status, *said)


def program(name: str, *prefix: str, modules: Sequence[str] = ()) -> Path:
    """A program for a shell, and for what starts processes by itself, in a folder of its own.

    It hands its arguments, variables, folder and open files to the server, which forks; it ends as the forked process ends, and passes
    signals on. A killed program takes the forked process with it.

    Args:
        name: of the program.
        prefix: what stands before its arguments: nothing for a Python, the file of an installed program for that one.
        modules: it forks ``-m MODULE`` with one of these; other commands start Python.
    """
    path = _folder() / name / name
    path.parent.mkdir(exist_ok=True)
    about = {
        "python": sys.executable,
        "address": _folder() / "server",
        "prefix": list(prefix),
        "modules": list(modules),
    }
    path.write_text(_PROGRAM.format(**about))
    path.chmod(0o755)
    return path


@cache
def python() -> str:
    """A program that is the Python of the tests, but forks floodmark's programs, and Spark's that names the states of a stream."""
    return str(program("python", modules=MODULES)) if FORKS else sys.executable


def starting_forks() -> dict[str, str]:
    """Variables of a forked process, whose own processes of ``MODULES`` are forked too."""
    return {VARIABLE: str(_folder() / "server")} if FORKS else {}


@cache
def _folder() -> Path:
    """The folder of the server, which listens."""
    made = Path(tempfile.mkdtemp(prefix="floodmark-forked-"))
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(made / "server")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | forks_alone.ALONE,
    )
    atexit.register(_gone, server, made)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return made


def _gone(server: subprocess.Popen[str], made: Path) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(made)


def _serve(address: str) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process for each connection; in it, what it is to do and its files; None once the process of the tests is gone.

    A process that is tied to its connection ends with that; others outlive who has asked for them.
    """
    for name in IMPORTED:
        import_module(name)
    forks_alone.check()
    gc.freeze()  # what is collected in a child need not look at all that was imported
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    running: dict[int, tuple[int, socket.socket]] = {}
    tied = set[socket.socket]()
    while True:
        waiting = [listener, sys.stdin, *running, *tied]
        ready, _, _ = select.select(waiting, [], [])
        for descriptor, (pid, connection) in list(running.items()):
            if descriptor in ready:
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                tied.discard(connection)
                connection.close()
                os.close(descriptor)
                del running[descriptor]
            elif connection in ready:  # the program was killed
                os.kill(pid, signal.SIGKILL)
        if sys.stdin in ready:
            return None
        if listener in ready:
            connection, _ = listener.accept()
            try:
                asked, files = _asked(connection)
            except (OSError, EOFError):  # who asks was killed meanwhile
                connection.close()
                continue
            pid = os.fork()
            if pid == 0:
                listener.close()
                if asked["session"]:
                    os.setsid()
                with suppress(OSError):  # as above; who asks may send a signal to its group at once
                    connection.sendall(f"{os.getpid()}\n".encode())
                return asked, files
            for file in files:
                os.close(file)
            running[os.pidfd_open(pid)] = pid, connection
            if asked["tied"]:
                tied.add(connection)


def _asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    text, files, _, _ = socket.recv_fds(connection, 1 << 16, _FILES)
    while not text.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            for file in files:
                os.close(file)
            raise EOFError
        text += part
    asked: dict[str, Any] = json.loads(text)
    return asked, files


def base_path() -> list[str]:
    """Import path of a Python that runs a file, without those of the environment and the file's own."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in sys.path[1:] if path not in given]


def settle(asked: Mapping[str, Any], base: Sequence[str]) -> list[str]:
    """Take environment, folder and import path of a command, whose files are open; the command's arguments."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    random.seed()
    if VARIABLE in os.environ:
        forking(*MODULES)
    tempfile.tempdir = None  # as the environment says
    first, *rest = asked["command"]
    folder = {"-c": "", "-m": os.getcwd()}.get(first)  # noqa: PTH109 - as Python writes it there
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [str(Path(first).resolve().parent) if folder is None else folder, *paths, *base]
    invalidate_caches()
    return [first, *rest]


def _perform(first: str, *rest: str) -> None:
    """What Python does with a command."""
    if first == "-c":
        text, *arguments = rest
        sys.argv = ["-c", *arguments]
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the text of a test
    elif first == "-m":
        module, *arguments = rest
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def status(command: Sequence[str]) -> int:
    """Exit status of a command, as Python has it."""
    try:
        _perform(*command)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - whatever the program has raised, Python prints it
        traceback.print_exc()
        return 1
    return 0


def end(status: int) -> None:
    """End this process as Python does, but leave its memory to the system: to take apart what was imported takes half a second."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    base = base_path()
    what = _serve(sys.argv[1])
    if what is not None:
        about, streams = what
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for file in (sys.stdout, sys.stderr):  # both may be one pipe, whose reader wants them in their order
            file.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        end(status(settle(about, base)))
