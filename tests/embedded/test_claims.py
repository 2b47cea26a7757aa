"""Two deliveries that begin at the same time in one place: one gets it, and the other one is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis_server
import search_server
import sinks
import small_lake
from claims_process import settings
from small_lake import TOTALS

from floodmark.core import crash
from floodmark.core.errors import ConnectorError
from floodmark.deliveries.files import MANIFEST
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes

ROUNDS = 60
REFUSED = {"DELIVERY-004", "DELIVERY-022", "DELIVERY-024", "LIFECYCLE-240", "LIFECYCLE-241"}
AWAY = "DELIVERY-001"
PROGRAM = Path(__file__).parents[1] / "support" / "claims_process.py"
FIRST, SECOND = {"a": 10, "b": 2}, {"a": 70, "b": 14}
"""What the two lakes hold."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Kind -> address of what is delivered to, made where it is asked for."""
    with ExitStack() as stack:

        class Addresses(dict[str, str]):
            def __missing__(self, kind: str) -> str:
                folder = tmp_path_factory.mktemp(kind)
                match kind:
                    case "files":
                        self[kind] = str(folder)
                    case "redis":
                        self[kind] = stack.enter_context(redis_server.server()).url
                    case "search":
                        self[kind] = stack.enter_context(search_server.server(folder)).url
                    case _:
                        self[kind] = stack.enter_context(sinks.database(kind))
                return self[kind]

        yield Addresses()


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Lake, Lake]:
    """Two lakes with other totals."""
    return small_lake.make(tmp_path / "first"), small_lake.make(tmp_path / "second", times=7)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that deliver."""
    command = [sys.executable, str(PROGRAM)]
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        yield started
        for process in started:
            assert process.stdin is not None
            process.stdin.close()


def outcomes(processes: list[subprocess.Popen[str]], deliveries: list[dict[str, Any]]) -> list[str]:
    """What the deliveries come to that the processes begin at the same time."""
    for process, delivery in zip(processes, deliveries, strict=True):
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(delivery)}\n")
    for process in processes:
        assert process.stdin is not None
        process.stdin.flush()
    answers = list[str]()
    for process in processes:
        assert process.stdout is not None
        answers.append(process.stdout.readline().strip())
    return answers


def totals(kind: str, address: str, target: str) -> dict[Any, int]:
    """What is there of a target: key -> total."""
    match kind:
        case "files":
            folder = Path(address, target)
            assert json.loads((folder / MANIFEST).read_text())["number"] == 0
            rows = [json.loads(line) for file in folder.glob("0*.json") for line in file.open()]
        case "redis":
            rows = redis_server.rows(address, target)
        case "search":
            rows = search_server.documents(address, target)
        case _:
            rows = sinks.rows(address, target)
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["total"] for row in rows}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        *((kind, 2) for kind in ("files", "sqlite", "postgresql", "redis")),
        *(
            pytest.param(kind, ROUNDS, marks=pytest.mark.soak)
            for kind in ("files", "sqlite", "postgresql", "mariadb", "redis", "search")
        ),
    ],
)
def test_one_of_two_deliveries_that_begin_at_the_same_time_is_refused(
    lakes: tuple[Lake, Lake],
    processes: list[subprocess.Popen[str]],
    addresses: dict[str, str],
    kind: str,
    rounds: int,
) -> None:
    for number in range(rounds):
        target = f"of_{rounds}_{number}"
        names = ("one", "other") if number % 2 else ("one", "one")  # of one lake each
        deliveries = [
            {"lake": lake.root, "name": name, "kind": kind, "address": addresses[kind], "target": target}
            for lake, name in zip(lakes, (f"{name}_{rounds}_{number}" for name in names), strict=True)
        ]
        answers = outcomes(processes, deliveries)
        while (
            AWAY in answers
        ):  # a database that was locked, or has ended one of two transactions that waited for each other
            answers = outcomes(processes, deliveries)
        taken = [place for place, answer in enumerate(answers) if answer == "taken"]
        assert len(taken) == 1, (number, answers)
        assert {*answers} - {"taken"} <= REFUSED, (number, answers)
        assert totals(kind, addresses[kind], target) == (FIRST, SECOND)[taken[0]], (number, answers)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *((kind, "delivery.before_rows") for kind in ("files", "sqlite", "redis")),
        *((kind, "delivery.before_position") for kind in ("files", "redis")),
    ],
)
def test_a_delivery_that_begins_while_the_first_one_is_at_work_is_refused(
    lakes: tuple[Lake, Lake],
    addresses: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    point: str,
) -> None:
    target, passed, refused = f"during_{point.rpartition('.')[2]}", list[str](), list[str]()

    def route(name: str) -> Route:
        return routes(TOTALS, [settings(kind, addresses[kind], target, f"{name}_{target}")], "test")[0]

    def beside(name: str) -> None:
        if name == point and not passed:
            passed.append(name)
            with pytest.raises(ConnectorError) as raised:
                deliver(route("second"), lakes[1], until_caught_up=True)
            refused.append(raised.value.code)

    monkeypatch.setattr(crash, "point", beside)
    deliver(route("first"), lakes[0], until_caught_up=True)
    assert {*refused} <= REFUSED
    assert len(refused) == 1
    assert totals(kind, addresses[kind], target) == FIRST
    with pytest.raises(ConnectorError, match=refused[0]):
        deliver(route("second"), lakes[1], until_caught_up=True)
    assert totals(kind, addresses[kind], target) == FIRST


class _Killed(BaseException):
    """Stands for the end of the process."""


def killed_before_its_first_row(route: Route, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that leaves its claim."""

    def killed(name: str) -> None:
        if name == "delivery.before_rows":
            raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(crash, "point", killed)
        with pytest.raises(_Killed):
            deliver(route, lake, until_caught_up=True)


SINKS = pytest.mark.parametrize(
    "kind",
    ["files", "sqlite", "redis", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("postgresql", "mariadb"))],
)


@SINKS
def test_a_claim_of_another_host_stays(
    lakes: tuple[Lake, Lake], addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The other host may have a lake under the same path, or none: neither tells whether the first delivery is at work."""
    target = "left_elsewhere"

    def route(name: str) -> Route:
        return routes(TOTALS, [settings(kind, addresses[kind], target, f"{name}_{target}")], "test")[0]

    with monkeypatch.context() as patched:
        patched.setattr("socket.gethostname", lambda: "elsewhere")
        killed_before_its_first_row(route("first"), lakes[0], monkeypatch)
    with pytest.raises(ConnectorError) as raised:
        deliver(route("second"), lakes[1], until_caught_up=True)
    assert raised.value.code in REFUSED
    killed_before_its_first_row(route("first"), lakes[0], monkeypatch)  # goes on on this host
    deliver(route("second"), lakes[1], until_caught_up=True)
    assert totals(kind, addresses[kind], target) == SECOND


@SINKS
@pytest.mark.parametrize("becomes", ["moved", "renamed", "both"])
def test_a_claim_without_a_delivery_behind_it_stops_nobody_once_its_process_is_gone(
    lakes: tuple[Lake, Lake],
    addresses: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    becomes: str,
) -> None:
    target = f"left_{becomes}"

    def route(name: str) -> Route:
        return routes(TOTALS, [settings(kind, addresses[kind], target, f"{name}_{target}")], "test")[0]

    killed_before_its_first_row(route("first"), lakes[0], monkeypatch)
    lake, name = lakes[0], "second"
    if becomes != "renamed":
        lake = Lake(str(Path(lakes[0].root).rename(tmp_path / "elsewhere")))
    if becomes == "moved":
        name = "first"
    deliver(route(name), lake, until_caught_up=True)
    assert totals(kind, addresses[kind], target) == FIRST
    with pytest.raises(ConnectorError) as raised:  # what it has delivered now is its own
        deliver(route("third"), lakes[1], until_caught_up=True)
    assert raised.value.code in REFUSED
    assert totals(kind, addresses[kind], target) == FIRST
