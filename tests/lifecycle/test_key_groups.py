"""How many key groups a stream has: what it began with, whatever the default is, and 64 where a checkpoint says nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from engines import embedded
from events import disorder
from streams import ONCE, PAIRED, WATCHED, WINDOWED, check

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import LifecycleError
from floodmark.engines.upgrading import rebuild
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream.identity import IDENTITY
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import Plan, plan
from floodmark.spec.graph.steps import KEY_GROUPS
from floodmark.testing.lakes import land

ROWS, FIRST = 120, 60


def declaring(code: Operator, groups: int) -> Operator:
    """The operator, as if its decorator had that many key groups."""
    return replace(code.grouped(groups), key_groups=groups)


def as_former(lake: Lake, name: str) -> None:
    """The checkpoint as a release wrote it that knew of no other number."""
    file = f"{Timeline.current(lake, name).checkpoint.path}/{IDENTITY}"
    identity = json.loads(read(file) or b"")
    assert identity.pop("key_groups") == 64
    write(file, json.dumps(identity).encode())


def planned(lake: Lake, code: Operator) -> Plan:
    """The plan of the stream's definition."""
    return plan(Timeline.current(lake, code.name).deployed, code)


@pytest.mark.feature("K10")
@pytest.mark.parametrize("code", [WINDOWED, WATCHED, PAIRED, ONCE], ids=lambda code: code.name)
@pytest.mark.few(1)
def test_a_stream_of_an_earlier_release_resumes_with_its_64(engine: Computing, tmp_path: Path, code: Operator) -> None:
    lake, log = Lake(str(tmp_path / "lake")), disorder(code, 5, ROWS)
    land(lake, code, log, 0, FIRST)
    engine.run_unbounded(declaring(code, 64), lake, until_caught_up=True)
    as_former(lake, code.name)
    before = planned(lake, code)
    assert (before.changes, before.key_groups, before.default_key_groups) == ((), 64, KEY_GROUPS)
    made = savepoints.create(code.name, lake)
    land(lake, code, log, FIRST)
    aside = fork(lake, made, str(tmp_path / "fork"))
    for place in (lake, aside):
        engine.run_unbounded(code, place, until_caught_up=True)
        assert planned(place, code).key_groups == 64
    check(lake, code, log)


@pytest.mark.feature("K10")
def test_the_number_that_is_declared_is_held_against_that_of_the_stream(engine: Computing, tmp_path: Path) -> None:
    code, wide = WINDOWED, declaring(WINDOWED, 1 << 15)
    lake, log = Lake(str(tmp_path / "lake")), disorder(code, 5, ROWS)
    land(lake, code, log, 0, FIRST)
    engine.run_unbounded(code, lake, until_caught_up=True)
    assert planned(lake, code).key_groups == KEY_GROUPS == 128
    assert wide.version == code.version, "no result depends on it"
    (change,) = planned(lake, wide).changes
    assert (change.before, change.after, change.verdict) == ("128 key groups", "32768 key groups", "rescale")
    land(lake, code, log, FIRST)
    with pytest.raises(LifecycleError, match="LIFECYCLE-230.*expected 128 key groups, as its stream began with"):
        engine.run_unbounded(wide, lake, until_caught_up=True)
    rebuild(partial(engine.run_unbounded), wide, lake)
    assert planned(lake, wide).changes == ()
    assert planned(lake, code).key_groups == 1 << 15, "it stays if the number is left out again"
    engine.run_unbounded(code, lake, until_caught_up=True)
    check(lake, code, log)


@pytest.mark.feature("K10")
def test_before_the_first_micro_batch_any_number_is_that_of_the_stream(tmp_path: Path) -> None:
    engine, lake, log = embedded(), Lake(str(tmp_path / "lake")), disorder(WINDOWED, 5, ROWS)
    land(lake, WINDOWED, log, 0, 0)
    for code, groups in ((WINDOWED, KEY_GROUPS), (declaring(WINDOWED, 1_000), 1_000), (declaring(WINDOWED, 96), 96)):
        engine.run_unbounded(code, lake, until_caught_up=True)
        identity = Timeline.current(lake, WINDOWED.name).identity
        assert identity.key_groups() == groups
    for start, stop in ((0, FIRST), (FIRST, None)):
        land(lake, WINDOWED, log, start, stop)
        engine.run_unbounded(declaring(WINDOWED, 96), lake, until_caught_up=True)
        assert planned(lake, WINDOWED).key_groups == 96
    check(lake, WINDOWED, log)
