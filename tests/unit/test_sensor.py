"""The sensor of streams: what it reports is what a walk over all partitions would, and its look reads what is new alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_lake import make

from floodmark import Daily, Hourly
from floodmark.core.time import NEVER
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments as of_lake
from floodmark.lake.restore import savepoints
from floodmark.lifecycle import savepoint as manifests
from floodmark.lifecycle.savepoint import Manifest
from floodmark.orchestration import automation, experiments, listing, partitions

LIST = str(listing.SAVEPOINTS.name)
CUTS = [
    Daily("2013-03-01", timezone="America/New_York"),
    Daily("2013-10-20", timezone="Australia/Lord_Howe", end="2013-11-20"),
    Hourly("2013-03-09", timezone="America/New_York"),
    Hourly("2013-11-02T00:00", timezone="America/New_York", end="2013-11-05"),
]
instants = st.integers(
    int(datetime(2013, 2, 27, tzinfo=UTC).timestamp()), int(datetime(2013, 12, 1, tzinfo=UTC).timestamp())
)


class Of:
    """An asset that is divided so."""

    def __init__(self, cut: Daily | Hourly) -> None:
        self.partitions = cut


@cache
def every(cut: Daily | Hourly) -> list[tuple[str, int]]:
    """All partitions since the first one, and their ends."""
    definition = partitions.definition(cut)
    return [
        (name, partitions.interval_of(definition.time_window_for_partition_key(name)).end)
        for name in definition.get_partition_keys(current_time=datetime(2014, 1, 1, tzinfo=UTC))
    ]


def walked(cut: Daily | Hourly, since: int, progress: int) -> list[tuple[str, int]]:
    """The same by every partition since the first one."""
    return [(name, end) for name, end in every(cut) if since < end - 1 <= progress]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut.boundaries} from {cut.start}")
@settings(max_examples=15)
@given(
    since=st.one_of(st.just(NEVER), instants.map(lambda s: s * 1000 + 999)),
    progress=instants.map(lambda s: s * 1000 + 999),
)
def test_partitions_are_reported_once_they_are_complete(cut: Daily | Hourly, since: int, progress: int) -> None:
    asset: Any = Of(cut)
    found = list(automation._complete(asset, since, progress))
    assert found == walked(cut, since, progress)[: automation._MOST]


def test_a_partition_is_complete_with_its_last_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    asset: Any = Of(Daily("2013-01-01"))
    end = int(datetime(2013, 1, 2, tzinfo=UTC).timestamp() * 1000)
    assert not list(automation._complete(asset, NEVER, end - 2))
    assert list(automation._complete(asset, NEVER, end - 1)) == [("2013-01-01", end)]
    assert not list(automation._complete(asset, end - 1, end - 1))


def test_a_look_reports_as_many_partitions_as_the_daemon_writes_in_five_seconds() -> None:
    for seconds_per_event, most in ((0.001, 200), (0.02, 200), (0.1, 50), (0.3, 12), (3, 10)):
        before, now = dict[str, Any](), 1000.0
        for _ in range(12):
            written = type("Entry", (), {"timestamp": now})
            instance: Any = type("Instance", (), {"get_latest_materialization_event": lambda _, _key, at=written: at})()
            before = {"most": automation._most(instance, before), "at": now, "last": ["hourly"]}
            now += before["most"] * seconds_per_event
            written.timestamp = now
        assert before["most"] == most, seconds_per_event


def test_a_look_that_has_few_partitions_leaves_the_pace_as_it_is() -> None:
    unread: Any = None
    assert automation._most(unread, {}) == automation._most(unread, {"most": 50}) == 50
    assert automation._most(unread, {"most": 12}) == 12


def test_operators_report_in_turn() -> None:
    made: Any = [("a", iter("12345")), ("b", iter("")), ("c", iter("67"))]
    assert "".join(f"{asset}{event}" for asset, event in automation._in_turn(made)) == "a1c6a2c7a3a4a5"


def test_a_look_that_could_not_report_all_is_followed_by_one_that_begins_behind_its_last_operator() -> None:
    def asset(name: str) -> Any:
        return SimpleNamespace(operator=SimpleNamespace(name=name))

    made: Any = [(asset(name), iter("12")) for name in "abc"]
    orders = {
        last: "".join(of.operator.name for of, _ in automation._behind(made, last))
        for last in (None, "a", "b", "c", "gone")
    }
    assert orders == {None: "abc", "a": "bca", "b": "cab", "c": "abc", "gone": "abc"}


def test_a_look_reads_the_manifests_of_new_savepoints_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make(tmp_path / "lake")
    made = [savepoints.create("totals", lake).id for _ in range(3)]
    Path(lake.internal("savepoints", "totals", "left-over.draft")).mkdir()
    Path(lake.internal("savepoints", "totals", "totals-20200101T000000-aaaa")).mkdir()
    read: list[str] = []
    parse: Callable[[bytes, str], Manifest] = Manifest.parse

    def counted(content: bytes, where: str) -> Manifest:
        read.append(where)
        return parse(content, where)

    monkeypatch.setattr(Manifest, "parse", counted)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(LIST, made[:2])
        listing.update_list(instance, lake, savepoints.names(lake))
        assert {listing.id_of(key) for key in instance.get_dynamic_partitions(LIST)} == set(made)
    assert len(read) == 1


def test_new_savepoints_stand_first_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make(tmp_path / "lake")

    def listed() -> list[str]:
        listing.update_list(instance, lake, savepoints.names(lake))
        return list(instance.get_dynamic_partitions(LIST))

    def made(number: int) -> str:
        return savepoints.create("totals", lake, why=f"number {number}, [x]...\n").id

    with dg.DagsterInstance.ephemeral() as instance:
        first = savepoints.find(lake, made(0))
        version = first.manifest.version.rsplit("@", 1)[1]
        assert listed() == [f"{first.id} version {version} - number 0 x"]
        second, third = made(1), made(2)
        assert [listing.id_of(key) for key in listed()] == [third, second, first.id]
        assert listed() == listed()
        monkeypatch.setattr(listing, "_FEW", 0)
        fourth, fifth = made(3), made(4)
        assert [listing.id_of(key) for key in listed()] == [third, second, first.id, fifth, fourth]


def test_a_list_of_savepoints_makes_what_checks_manifests_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, made = make(tmp_path / "lake"), list[object]()
    created = [savepoints.create("totals", lake).id for _ in range(3)]
    adapter = manifests.TypeAdapter
    monkeypatch.setattr(manifests, "TypeAdapter", lambda kind: made.append(kind) or adapter(kind))
    manifests._manifests.cache_clear()
    assert {one.id for one in savepoints.savepoints(lake)} == set(created)
    assert made == [Manifest]


def test_lists_of_experiments_are_asked_for_when_they_should_change_and_once_an_hour(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace of 200 operators has 401 lists; each costs a query."""
    made, asked, known = list[Any](), list[str](), dict[str, Any]()
    monkeypatch.setattr(of_lake, "known", lambda _: made)
    with dg.DagsterInstance.ephemeral() as instance:
        ask = instance.get_dynamic_partitions
        monkeypatch.setattr(instance, "get_dynamic_partitions", lambda name: asked.append(name) or ask(name))

        def look(now: float) -> list[Any]:
            """What a look requests, which the daemon does before it keeps the cursor."""
            asked.clear()
            requests = experiments.experiments_listed(instance, lake, ["a", "b"], known, now)
            for request in requests:
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
                else:
                    for key in request.partition_keys:
                        instance.delete_dynamic_partition(request.partitions_def_name, key)
            return requests

        assert (look(0), len(asked)) == ([], 5)
        assert (look(15), len(asked)) == ([], 0)
        made.append(SimpleNamespace(name="one", operator="a", arms=[SimpleNamespace(name="left")]))
        assert len(look(30)) == 3
        assert (look(45), len(asked)) == ([], 0)
        instance.delete_dynamic_partition(str(experiments.EXPERIMENTS.name), "one")
        assert (look(60), len(asked)) == ([], 0)
        assert len(look(30 + 3600)) == 1, "by hand"
        made.clear()
        assert len(look(3700)) == 3
        instance.add_dynamic_partitions(str(experiments.EXPERIMENTS.name), ["by hand"])
        assert len(look(0)) == 1, "the clock was set back"
        assert instance.get_dynamic_partitions(str(experiments.EXPERIMENTS.name)) == []
