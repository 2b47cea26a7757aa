"""What the sensor of streams reports is reported once, whichever write of Dagster's daemon or of the sensor is its last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_runs import looked
from events import Event, row, source

from floodmark import Hourly, Settings, Stream, Tumbling, Workspace, count, operator, operator_asset, source_asset
from floodmark.control.processes.engine import Computing
from floodmark.control.streams.fleet import Fleet
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.orchestration import automation, build_definitions, listing

HOURS = Hourly("2020-01-01T00:00", end="2020-01-02T00:00")
WRITES = ("report_runless_asset_event", "add_dynamic_partitions", "delete_dynamic_partition")
"""Of an instance: all that a look writes."""


@operator
def hourly(events: Stream[Event]) -> Stream:
    """A stream with asset partitions."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@operator
def counted(events: Stream[Event]) -> Stream:
    """A stream without asset partitions."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(m=count())


class Killed(BaseException):
    """The daemon is gone."""


class Daemon:
    """What Dagster's daemon does with a look of the sensor, one write after the other, and a write before which it is killed."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance, patch: pytest.MonkeyPatch) -> None:
        self.definitions, self.instance = definitions, instance
        self.cursor: str | None = None
        self.left = 10**6
        for name in WRITES:
            patch.setattr(instance, name, self._counted(getattr(instance, name)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted_write(*args: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return write(*args)

        return counted_write

    def look(self, before_write: int) -> bool:
        """A look; False if its daemon was killed before this write of it, or before it wrote the cursor."""
        self.left = before_write
        try:
            found = looked(self.definitions, self.instance, self.cursor, report=True)
        except Killed:
            return False
        if self.left == 0:
            self.left = -1
            return False
        self.cursor = found.cursor
        return True

    def reported(self) -> Counter[tuple[str, str]]:
        """(asset, partition or what tells a materialization apart) of all that Dagster has."""
        found = Counter[tuple[str, str]]()
        for key in self.instance.get_asset_keys():
            for record in self.instance.fetch_materializations(key, limit=1000).records:
                event = record.asset_materialization
                assert event is not None
                about = {name: str(value.value) for name, value in event.metadata.items()}
                if "savepoint" in about or "deleted" in about:
                    found["savepoints", about.get("savepoint") or f"deleted {about['deleted']}"] += 1
                else:
                    found[key.to_user_string(), event.partition or about["watermark"]] += 1
        return found


@pytest.fixture(scope="module")
def streams(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Two streams and a landing that have done what there is, and three savepoints."""
    root, engine = tmp_path_factory.mktemp("reported"), embedded
    (root / "pyproject.toml").write_text("")
    workspace = Workspace(
        sources=[source_asset(source([row(minute) for minute in range(200)]))],
        operators=[operator_asset(hourly, partitions=HOURS), operator_asset(counted)],
        settings=Settings(lake="lake", engine="embedded"),
    ).at(str(root))
    lake = Lake.of(workspace.settings)
    engine.land(workspace.source("events"), lake)
    for one in workspace.operators:
        engine.run_unbounded(one, lake, until_caught_up=True)
    for _ in range(3):
        savepoints.create("hourly", lake, why="by hand")
    Fleet(workspace=workspace, root=root, say=lambda _: None).start([workspace.source("events"), *workspace.operators])
    return workspace


@pytest.mark.feature("Z1", "V2")
def test_a_look_that_is_cut_short_behind_any_write_is_made_good_by_the_next_and_nothing_is_reported_twice(
    streams: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.of(streams.settings)
    definitions = build_definitions(streams, root=Path(streams.settings.folder))
    every = [one.manifest.id for one in savepoints.savepoints(lake)]
    keys = [listing.key_of(one) for one in reversed(savepoints.savepoints(lake))]
    shown = set[str]()
    monkeypatch.setattr(savepoints, "names", lambda _: set(shown))
    monkeypatch.setattr(
        automation, "reports", lambda *_: ()
    )  # the health of streams, which is as it is now and reported again and again
    before, finished = 0, False
    while not finished:
        with dg.DagsterInstance.ephemeral() as instance, monkeypatch.context() as patch:
            daemon = Daemon(definitions, instance, patch)
            steps = set(every[:2]), set(every[1:]), set[str]()
            finished = True
            for number, there in enumerate(steps):
                shown.clear()
                shown.update(there)
                finished &= daemon.look(before)
                assert daemon.look(10**6)
                listed = instance.get_dynamic_partitions("floodmark_savepoints")
                assert listed == [key for key in keys if listing.id_of(key) in there], (before, number)
                assert set(instance.get_dynamic_partitions("floodmark_reported_savepoints")) == there
            reported = daemon.reported()
            hours = [("hourly", f"2020-01-01-0{hour}:00") for hour in range(3)]
            assert set(reported.values()) == {1}, (before, reported)
            assert {one for one in reported if one[0] == "hourly"} == set(hours)
            assert {name for name, _ in reported} == {"hourly", "counted", "events", "savepoints"}
            about = {about for name, about in reported if name == "savepoints"}
            assert about == {*every, f"deleted {every[0]}", f"deleted {', '.join(every[1:])}"}
        before += 1
    assert before > 9, "a look writes as much"
