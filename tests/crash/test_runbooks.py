"""The runbooks of docs/upgrades.md, followed command by command on hosts of their own while rows arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import forked
import psutil
import pytest
from console_pages import FENCE, ran
from failing_hosts import PATIENCE_SECONDS, Host, check_turns, drivers, has_summed, put, run_on, started, until

from floodmark.control.streams.fleet import Fleet

PAGE = Path(__file__).parents[2] / "docs" / "upgrades.md"
INSTALL = "python -m pip install --upgrade floodmark"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A workspace whose control store is in PostgreSQL, and whose streams were started."""
    with started(tmp_path) as fleet:
        yield fleet


def steps(title: str) -> list[tuple[str, str]]:
    """(host, command) of each step of a runbook of the page."""
    text = PAGE.read_text("utf-8")
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    found = [one for one in FENCE.finditer(section) if one["kind"] == "console"]
    return [(one["argument"], line.removeprefix("$ ")) for one in found for line in one["body"].splitlines()]


class Operations:
    """Somebody who follows a runbook.

    Args:
        fleet: the workspace.
        names: of its hosts, the one that works first.
    """

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        self.fleet, self.files, self.printed = fleet, 1, ""
        self.hosts = dict[str, Host]()
        for name in names:
            self.start(name)
            until(fleet, lambda: run_on(fleet, names[0]) and has_summed(fleet, 1))

    def start(self, name: str) -> None:
        """Start what the host runs."""
        before = self.hosts.get(name)
        if before is not None:
            before.kill()
        host = self.hosts[name] = Host(self.fleet.root, name, 0)
        until(self.fleet, lambda: host.stands_by)

    def stop(self, name: str) -> None:
        """Stop what the host runs, and wait until it has ended."""
        supervisor = self.hosts[name].supervisor
        supervisor.terminate()
        with suppress(psutil.NoSuchProcess):
            supervisor.wait(PATIENCE_SECONDS)
        self.hosts[name].stopped = True

    def follow(self, title: str) -> None:
        """Take all steps of a runbook, while rows arrive."""
        for host, command in steps(title):
            put(self.fleet.root, self.files)
            self.files += 1
            self._do(host, command)
            ran(command)

    def _do(self, name: str, command: str) -> None:
        match command.split():
            case ["systemctl", "stop", "floodmark.target"]:
                self.stop(name)
            case ["systemctl", "start", "floodmark.target"]:
                assert self.hosts[name].stopped
                self.start(name)
            case ["python", "-m", "pip", *_]:
                assert command == INSTALL
                assert self.hosts[name].stopped, "nothing runs while packages are replaced"
            case ["floodmark", *arguments]:
                program = [sys.executable, "-m", "floodmark.cli.main", *arguments]
                done = forked.run(program, cwd=self.fleet.root)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                self.printed += done.stdout
            case _:
                raise AssertionError(command)

    def end(self) -> None:
        """Nothing is left."""
        for host in self.hosts.values():
            host.kill()


@pytest.fixture
def operations(fleet: Fleet) -> Iterator[Callable[..., Operations]]:
    """People at work; their hosts are gone afterwards."""
    made: list[Operations] = []

    def begin(*names: str) -> Operations:
        made.append(Operations(fleet, names))
        return made[-1]

    yield begin
    for one in made:
        one.end()


@pytest.mark.feature("O7")
@pytest.mark.timeout(900)
def test_two_hosts_are_upgraded_one_after_the_other_and_no_row_is_lost_or_double(
    fleet: Fleet, operations: Callable[..., Operations]
) -> None:
    people = operations("first", "second")
    people.follow("Two hosts")
    until(fleet, lambda: run_on(fleet, "second") and has_summed(fleet, people.files))
    check_turns(fleet)
    epochs = [one.epoch for one in drivers(fleet).values()]
    assert epochs == [1, 1], "each stream was started once more"


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_one_host_is_upgraded_and_goes_back_to_the_savepoint_and_no_row_is_lost_or_double(
    fleet: Fleet, operations: Callable[..., Operations]
) -> None:
    people = operations("first")
    people.follow("One host")
    until(fleet, lambda: run_on(fleet, "first") and has_summed(fleet, people.files))
    people.follow("Back")
    until(fleet, lambda: run_on(fleet, "first") and has_summed(fleet, people.files))
    check_turns(fleet)
