"""Processor seconds of each test and of each fixture that lasts, with all processes they start: ``python tests/support/cpu_seconds.py FILE.csv PYTEST ARGUMENTS``.

The wall clock says little on a busy machine; what ``make test`` takes on two cores is its processor seconds, halved. FILE.csv gets a row for each:
seconds, wall-clock seconds, which (``test`` or ``fixture``), name. What a fixture costs that lasts longer than a test is not in the first test that asks for it. What
processes that outlast their test do later is in the tests after it. The dearest are printed at the end. Linux only.
"""

from __future__ import annotations

import csv
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = "CPU_SECONDS_ROOT"
"""Variable: the process whose descendants are counted."""
TABLE = "CPU_SECONDS_TABLE"
PRINTED = 25
SUBREAPER = 36
"""Of prctl: processes whose parent has ended become children of this one."""


def spent(root: int) -> float:
    """Processor seconds of a process, of its descendants, and of those of them that have ended."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a scan per test
        if name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                seconds[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, generation = 0.0, {root}
    while generation:
        total += sum(seconds.get(pid, 0) for pid in generation)
        generation = {pid for pid, parent in parents.items() if parent in generation}
    return total


class Seconds:
    """Plugin of pytest that keeps the rows."""

    def __init__(self, root: int, table: Path) -> None:
        self.rows: list[tuple[float, float, str, str]] = []
        self._root, self._table = root, table
        self._inner = [0.0]
        """Seconds of what has been counted by itself inside of what is being counted."""

    @contextmanager
    def _counted(self, kind: str, name: str) -> Iterator[None]:
        before, begun = spent(self._root), time.monotonic()
        self._inner.append(0.0)
        yield
        whole = spent(self._root) - before
        self.rows.append((whole - self._inner.pop(), time.monotonic() - begun, kind, name))
        self._inner[-1] += whole

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """A test with what only it sets up and takes down."""
        with self._counted("test", item.nodeid):
            found = yield
        return found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """A fixture that lasts."""
        if fixturedef.scope == "function":
            return (yield)
        with self._counted("fixture", f"{fixturedef.baseid}::{fixturedef.argname}"):
            found = yield
        return found

    def pytest_sessionfinish(self) -> None:
        """Write the table."""
        with self._table.open("w", newline="") as file:
            csv.writer(file).writerows((f"{a:.2f}", f"{b:.2f}", kind, name) for a, b, kind, name in self.rows)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the dearest."""
        terminalreporter.write_line(f"{spent(self._root):.0f} processor seconds with imports and collection")
        for seconds, wall, kind, name in sorted(self.rows, reverse=True)[:PRINTED]:
            terminalreporter.write_line(f"{seconds:8.1f} ({wall:.1f} by the clock) {kind} {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(Seconds(int(os.environ[ROOT]), Path(os.environ[TABLE])))


def main(table: str, *arguments: str) -> int:
    """Run pytest below this process, to which what outlasts its parent falls."""
    if ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this system lets no process take over the descendants of its children: count on Linux")
    variables = os.environ | {ROOT: str(os.getpid()), TABLE: str(Path(table).resolve())}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    pytest_run = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "cpu_seconds", *arguments], env=variables)
    while True:
        pid, status = os.wait()
        if pid == pytest_run.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
