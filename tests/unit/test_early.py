"""What can be said before Spark starts is said then."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from records import properties

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source, Stream, operator
from floodmark.connectors.unit import Landed
from floodmark.core.errors import ConnectorError, ExecutionError, LifecycleError, StateError
from floodmark.engines.landing import quarantine
from floodmark.engines.landing import run as landing
from floodmark.engines.spark.unbounded import run as unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.commits import Landing


class Event(Contract):
    """Something that happened."""

    at: EventTime
    key: str


def read(name: str, condition: str) -> object:
    """An operator of that name."""

    def rows(events: Stream[Event]) -> Stream:
        """The rows a condition keeps."""
        return events.filter(condition)

    rows.__name__ = rows.__qualname__ = name
    return operator(rows)


def source(folder: Path) -> Source:
    return Source("events", contract=Event, connector=Files(str(folder)), watermark=BoundedOutOfOrderness("1 minute"))


def test_a_stream_of_another_version_is_refused(lake: Lake) -> None:
    Path(lake.log("events"), "_delta_log").mkdir(parents=True)
    before, now = read("same", "key = 'a'"), read("same", "key = 'b'")
    timeline = Timeline(lake, "same")
    timeline.identity.deploy(before)
    for one in (before, now):  # nothing is there yet
        unbounded.check_start(one, lake)
    write(f"{timeline.checkpoint.path}/commits/0", b"v1\n{}")
    unbounded.check_start(before, lake)
    with pytest.raises(StateError, match=r"STATE-003 .*floodmark plan same"):
        unbounded.check_start(now, lake)
    unbounded.check_start(now, lake, from_scratch=True)


def test_an_input_nobody_has_filled_is_refused(lake: Lake) -> None:
    with pytest.raises(ExecutionError, match="EXECUTION-002 .*floodmark land events"):
        unbounded.check_start(read("same", "true"), lake)


def test_an_inbox_that_vanished_is_refused_and_so_is_a_log_of_another_lake(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    landing.check_start(source(tmp_path / "inbox"), lake)
    with pytest.raises(ConnectorError, match=r"CONNECTOR-002 source 'events': .*Did you mean 'inbox'\?"):
        landing.check_start(source(tmp_path / "inbo"), lake)
    with pytest.raises(LifecycleError, match="LIFECYCLE-012"):
        landing.check_start(source(tmp_path / "inbox"), Lake(lake.root, logs=str(tmp_path / "other")))


def test_more_to_land_after_the_end_of_input_is_refused(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "1.csv").write_text("at,key\n2020-01-01T00:00:00Z,a\n")
    events = source(tmp_path / "inbox")
    (first,) = landing.reader_of(events).pending({}).units
    unit = Landed(name=first.name, size=first.size, modified=first.modified, digest="x", status="landed", ordinal=0)
    ended = Landing(source="events", ordinal=0, units=(unit,), definition=events.canonical(), ended=True)
    write_deltalake(lake.log("events"), pa.table({"key": ["a"]}), commit_properties=properties(ended))
    landing.check_start(events, lake)
    quarantine.check_replay(events, lake)
    (tmp_path / "inbox" / "2.csv").write_text("at,key\n2020-01-02T00:00:00Z,a\n")
    with pytest.raises(LifecycleError, match=r"LIFECYCLE-011 .*1 more to land: 2\.csv"):
        landing.check_start(events, lake)
    write_deltalake(lake.quarantine("events"), pa.table({"raw": ["x"]}))
    with pytest.raises(LifecycleError, match="LIFECYCLE-011 source 'events'"):
        quarantine.check_replay(events, lake)
