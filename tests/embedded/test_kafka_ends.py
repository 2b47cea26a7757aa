"""A topic is read up to an end, and how far a landing is behind is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from background import in_background
from deltalake import DeltaTable
from kafka_topic import BASE, land, message, source

from floodmark import Kafka, Settings, Workspace
from floodmark.core.errors import DefinitionError
from floodmark.engines.landing.session import Committed
from floodmark.lake.folder.paths import Lake
from floodmark.observe.status import status

if TYPE_CHECKING:
    from kafka_broker import Broker


def numbers(lake: Path) -> list[int]:
    table = DeltaTable(Lake(str(lake)).log("clicks")).to_pyarrow_table().to_pylist()
    return sorted(row["number"] for row in table if row["_kind"] == 0)


def test_how_far_a_landing_is_behind_is_told_of_each_partition(broker: Broker, tmp_path: Path) -> None:
    topic, commits = broker.topic(2), list[Committed]()
    broker.put(topic, ((int(number >= 70), message(number)) for number in range(100)))
    clicks = source(broker.servers, topic)

    def told() -> Any:
        (entry,) = status(Workspace(sources=[clicks], settings=Settings(lake=str(tmp_path))), Lake(str(tmp_path)))
        return entry["behind"]

    land(clicks, tmp_path, max_commits=2, on_commit=commits.append)
    behind = told()
    assert sorted(behind) == [f"{topic}/0", f"{topic}/1"]
    assert sum(behind.values()) == 100 - len(numbers(tmp_path)) > 0
    land(clicks, tmp_path, on_commit=commits.append)
    assert told() == {f"{topic}/0": 0, f"{topic}/1": 0}
    counts = [commit.behind for commit in commits]
    assert counts == sorted(counts, reverse=True)  # type: ignore[type-var]
    assert counts[-1] == 0


def test_a_source_ends_at_the_offsets_that_it_names(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(3)
    broker.put(topic, ((number % 3, message(number)) for number in range(60)))
    clicks = source(broker.servers, topic, end={0: 10, 1: 22})
    first = land(clicks, tmp_path)
    assert numbers(tmp_path) == sorted([*range(0, 30, 3), *range(1, 60, 3)])
    assert not first.ended, "partition 1 has 20 messages so far"
    broker.put(topic, ((1, message(number)) for number in (100, 101, 102)))
    assert land(clicks, tmp_path).ended
    assert numbers(tmp_path)[-2:] == [100, 101]
    assert land(clicks, tmp_path).commits == 0


def test_a_landing_that_goes_on_ends_with_the_instant_of_its_source(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(2, retention_ms=-1)
    for partition, number, at in ((0, 1, 0), (0, 2, 9_000), (0, 3, 10_000), (0, 4, 2_000), (1, 5, 1_000)):
        broker.put(topic, [(partition, message(number))], timestamp=BASE + at)
    clicks = source(broker.servers, topic, end="2023-11-14T22:13:30Z")  # BASE and 10 s
    assert in_background(land, clicks, tmp_path, until_caught_up=False, poll_seconds=0.05).result(300).ended
    assert numbers(tmp_path) == [1, 2, 5]
    far = source(broker.servers, topic, end="2100-01-01")
    assert not land(far, tmp_path / "far").ended
    assert numbers(tmp_path / "far") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("end", "code"),
    [({}, "DEFINITION-316"), ({0: -1}, "DEFINITION-316"), ({"a": 1}, "DEFINITION-316"), ("soon", "DEFINITION-316")],
)
def test_an_end_is_an_instant_or_offsets(end: Any, code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        Kafka("orders", "localhost:9092", end=end)
