"""Deliveries: the sink has the last values after each step of a schedule, whatever is killed, rolled back or computed anew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sinks
from delivery_schedule import Schedule, delivered, results
from kafka_topic import committed
from seeds import seed_of
from streams import PLAIN, WINDOWED

from floodmark.deliveries.files import CHANGE, MANIFEST
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator

if TYPE_CHECKING:
    from kafka_broker import Broker

SEEDS = [(code, seed) for seed in range(2, 12) for code in (WINDOWED, PLAIN)]
SOME = [(WINDOWED, 1), *(pytest.param(*case, marks=pytest.mark.soak) for case in SEEDS)]
SCHEDULES = [
    (WINDOWED, "postgresql", 0),
    *(
        pytest.param(code, kind, number, marks=pytest.mark.soak)
        for number in range(1, 51)
        for kind in ("postgresql", "mariadb")
        for code in (WINDOWED, PLAIN)
    ),
    *(pytest.param(WINDOWED, "sqlite", number, marks=pytest.mark.soak) for number in range(1, 11)),
]
"""Definition that begins, database, number of the schedule."""
SHORT = ("land", "promote", "back", "upgrade")
"""Steps of the schedule of every run."""


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """URL of a database of each kind that was asked for."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        class Urls(dict[str, str]):
            def __missing__(self, kind: str) -> str:
                self[kind] = stack.enter_context(sinks.database(kind))
                return self[kind]

        yield Urls()


@pytest.mark.feature("Z28")
@pytest.mark.parametrize(("code", "kind", "number"), SCHEDULES)
def test_a_table_has_the_last_values_after_each_step(
    sail: Sail, servers: dict[str, str], code: Operator, kind: str, number: int, tmp_path: Path
) -> None:
    import sqlalchemy as sa

    seed, lake, url = seed_of(f"{code.name} to {kind}, {number}"), Lake(str(tmp_path / "lake")), servers[kind]
    engine = sa.create_engine(url)
    with engine.begin() as connection:  # that of the schedule before
        for table in ("windowed", "plain", "_floodmark_positions"):
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
    engine.dispose()
    schedule, killed = Schedule(sail, code, lake, seed), 0
    for step in SHORT if number == 0 else range(8):
        if isinstance(step, str):
            schedule.take(step)
        else:
            schedule.draw()
        killed += schedule.deliver("sql", url, kills=1 if number == 0 else 2)
        assert delivered(sinks.rows(url, code.name), schedule.code) == results(lake, schedule.code), (
            seed,
            schedule.done,
        )
    print(f"seed {seed}: {schedule.done}, {killed} kills")  # noqa: T201 - what was drawn
    assert killed


@pytest.mark.parametrize(("code", "seed"), SOME)
def test_files_have_the_results_after_each_step(sail: Sail, code: Operator, seed: int, tmp_path: Path) -> None:
    lake, folder = Lake(str(tmp_path / "lake")), tmp_path / "files"
    schedule = Schedule(sail, code, lake, seed)
    for _ in range(3 if seed == 1 else 8):
        schedule.draw()
        schedule.deliver("files" if code is WINDOWED else "divided", str(folder), kills=1 if seed == 1 else 2)
        assert delivered(in_files(folder, schedule.code), schedule.code) == results(lake, schedule.code), schedule.done


def in_files(folder: Path, code: Operator) -> list[dict[str, Any]]:
    """The results that the files amount to."""
    manifest = json.loads((folder / MANIFEST).read_text())
    numbers = range(manifest["first"], manifest["number"] + 1)
    files = sorted(folder.rglob("[0-9]*.json"), key=lambda file: file.name)
    counted = {int(file.name[:10]): file.name for file in files}
    assert {file.name for file in files} == {*counted.values()}, "one name for each number"
    assert {*counted} <= {*numbers} if code.name == PLAIN.name else [*counted] == [*numbers]
    rows = [json.loads(line) | in_name(file) for file in files for line in file.read_text().splitlines()]
    if not code.outputs[0].revisable:
        return rows
    last = {tuple(row[name] for name in code.outputs[0].keys): row for row in rows}
    return [{n: v for n, v in row.items() if n != CHANGE} for row in last.values() if row[CHANGE] == "upsert"]


def in_name(file: Path) -> dict[str, Any]:
    """What the folders of a file that is divided say of its rows."""
    said = dict(part.split("=") for part in file.parts if "=" in part)
    return {name: int(text) if name == "value" else text for name, text in said.items()}


@pytest.mark.parametrize(("code", "seed"), [pytest.param(*SOME[0], marks=pytest.mark.feature("E4", "Z12")), *SOME[1:]])
def test_a_reader_of_the_topic_sees_each_change_once(
    sail: Sail, broker: Broker, code: Operator, seed: int, tmp_path: Path
) -> None:
    lake, topic = Lake(str(tmp_path / "lake")), broker.topic(partitions=2)
    schedule, killed = Schedule(sail, code, lake, seed), 0
    for _ in range(3 if seed == 1 else 8):
        schedule.draw()
        killed += schedule.deliver("kafka", broker.servers, topic, kills=2)
        messages = committed(broker, topic, partitions=2)
        times = Counter((message.key(), dict(message.headers())["floodmark-number"]) for message in messages)
        assert set(times.values()) == {1}, schedule.done
        last = {message.key(): message.value() for message in messages}
        rows = [json.loads(value) for value in last.values() if value is not None]
        assert delivered(rows, schedule.code) == results(lake, schedule.code), schedule.done
    assert killed
