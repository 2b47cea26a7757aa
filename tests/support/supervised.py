"""Fleets and supervisors of tests of supervised streams, whose first drivers die at a point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import forked
import pytest

from floodmark.control.processes import supervisor as supervisor_module
from floodmark.control.processes.package import load
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.core import background, crash

PATIENCE_SECONDS = 300


def fleet_of(root: Path, code: str, lake: str = "") -> Fleet:
    """The fleet of a new workspace of one module, which has a folder ``inbox``; its lake is there too unless another one is named."""
    (root / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "streams_of_test"\n')
    (root / "streams_of_test.py").write_text(code)
    (root / "inbox").mkdir()
    workspace = load(root, "dev", str(root), lake or str(root / "lake"))
    sys.path.remove(str(root))
    del sys.modules["streams_of_test"]
    return Fleet(workspace=workspace, root=root, say=lambda _: None)


def _forked(
    command: Sequence[str], *, log: Path, folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """As ``background.begin``, with variables before the program; another program than Python is not forked."""
    if sys.executable not in command:
        return background.begin(command, log=log, folder=folder, environment=environment)
    program = command.index(sys.executable)
    variables = dict(word.split("=", 1) for word in command[:program])
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return forked.begin(
            command[program:],
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextmanager
def forked_drivers() -> Iterator[None]:
    """The drivers that supervisors of this process start are forked, without two seconds of imports."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(supervisor_module, "begin", _forked)
        yield


@contextmanager
def supervisors(fleet: Fleet, dies: Callable[[Driver], str] | None = None) -> Iterator[Callable[..., Supervisor]]:
    """Makes supervisors, each with a holder and the point at which the first process of a stream dies, or with ``dies`` each that has one; whatever they started is gone behind the block, also while the control store is away."""
    begun = list[subprocess.Popen[bytes]]()

    def begin(
        command: Sequence[str], *, log: Path, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        begun.append(_forked(command, log=log, folder=folder, environment=environment))
        return begun[-1]

    def supervisor(holder: str = "one", point: str = "") -> Supervisor:
        def command(driver: Driver) -> list[str]:
            at = dies(driver) if dies is not None else point if driver.epoch == 0 else ""
            dying = [f"{crash.VARIABLE}={at}"] if at else []
            module = "floodmark.control.processes.driver"
            return [*dying, sys.executable, "-m", module, str(driver.id), str(fleet.home / "packages")]

        return Supervisor(store=fleet.store, home=fleet.home, holder=holder, command=command, say=lambda _: None)

    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(supervisor_module, "begin", begin)
            yield supervisor
    finally:
        for process in begun:
            if process.poll() is None:
                with suppress(ProcessLookupError):  # it ends by itself
                    os.killpg(process.pid, signal.SIGKILL)


def until(supervisor: Supervisor, stream: str, seen: Callable[[Driver], object]) -> Driver:
    """Let a supervisor look until the newest driver of a stream, named as in the store, is so."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        assert supervisor.tick()
        newest = next(iter(supervisor.store.drivers(stream)), None)
        if newest is not None and seen(newest):
            return newest
        time.sleep(0.02)
    drivers = supervisor.store.drivers(stream)
    raise AssertionError("\n".join(Path(driver.log).read_text()[-2000:] for driver in drivers if driver.log) or drivers)
