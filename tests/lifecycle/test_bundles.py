"""Many key groups lie in bundles: the state is that of a stream with as many key groups as there are bundles, and rows are those of any other number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from events import disorder
from ruled import RULED, spread
from staged import BUSIEST
from streams import ONCE, PAIRED, VISITS, WATCHED, WINDOWED, check

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream import sample
from floodmark.lake.stream.identity import IDENTITY
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.plan import plan
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

from .test_key_groups import declaring

MANY = 1 << 15


def numbers(lake: Lake, code: Operator) -> tuple[int, int] | None:
    """Key groups of a stream, and parts of its state."""
    return Timeline.current(lake, code.name).identity.divided()


def path_of(lake: Lake) -> str:
    """The file of the identity of the stream ``WINDOWED``."""
    return f"{Timeline.current(lake, WINDOWED.name).checkpoint.path}/{IDENTITY}"


def recorded(lake: Lake) -> dict[str, Any]:
    """The identity of the stream ``WINDOWED``."""
    content: dict[str, Any] = json.loads(read(path_of(lake)) or b"")
    return content


@pytest.mark.feature("K10")
@pytest.mark.parametrize("code", [WINDOWED, WATCHED, PAIRED, VISITS, ONCE, RULED, BUSIEST], ids=lambda code: code.name)
@pytest.mark.few(2)
def test_a_stream_of_many_key_groups_has_few_bundles(engine: Computing, tmp_path: Path, code: Operator) -> None:
    lake, log = Lake(str(tmp_path / "lake")), spread(code, 8)
    for start, stop in ((0, 90), (90, None)):
        land(lake, code, log, start, stop)
        engine.run_unbounded(declaring(code, MANY), lake, until_caught_up=True)
        assert numbers(lake, code) == (MANY, 64)
    check(lake, code, log)


@pytest.mark.feature("K10")
def test_a_stream_that_began_without_bundles_keeps_its_parts_until_it_is_rescaled(
    engine: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lake, log = declaring(WATCHED, MANY), Lake(str(tmp_path / "lake")), disorder(WATCHED, 5, 120)
    with monkeypatch.context() as before:
        before.setattr(sample, "bundles", lambda groups, _: groups)
        land(lake, code, log, 0, 40)
        engine.run_unbounded(code, lake, until_caught_up=True)
    land(lake, code, log, 40, 80)
    engine.run_unbounded(code, lake, until_caught_up=True)
    assert numbers(lake, code) == (MANY, MANY)
    made = engine.regroup(code, lake, MANY)
    assert made is not None
    assert numbers(lake, code) == (MANY, 64)
    assert engine.regroup(code, lake, MANY) is None
    land(lake, code, log, 80)
    engine.run_unbounded(code, lake, until_caught_up=True)
    check(lake, code, log)


@pytest.mark.feature("K10", "V5")
def test_a_release_that_knows_no_bundles_resumes_them_as_key_groups(engine: Computing, tmp_path: Path) -> None:
    """Or refuses the number that is declared, and says so."""
    code, lake, log = declaring(WINDOWED, MANY), Lake(str(tmp_path / "lake")), disorder(WINDOWED, 5, 120)
    land(lake, code, log, 0, 60)
    engine.run_unbounded(code, lake, until_caught_up=True)
    identity = recorded(lake)
    assert (identity.pop("key_groups_of_bundles"), identity.pop("bundles")) == (MANY, 64)
    write(path_of(lake), json.dumps(identity).encode())
    (change,) = plan(Timeline.current(lake, code.name).deployed, code).changes
    assert (change.before, change.after) == ("64 key groups", "32768 key groups")
    land(lake, code, log, 60)
    engine.run_unbounded(WINDOWED, lake, until_caught_up=True)
    check(lake, WINDOWED, log)


@pytest.mark.feature("K10", "V5")
def test_a_release_that_knows_no_bundles_divides_them_anew(engine: Computing, tmp_path: Path) -> None:
    """It records another number of key groups, and leaves what else is recorded."""
    lake, log = Lake(str(tmp_path / "lake")), disorder(WINDOWED, 5, 120)
    land(lake, WINDOWED, log, 0, 60)
    engine.run_unbounded(declaring(WINDOWED, MANY), lake, until_caught_up=True)
    before = recorded(lake)
    engine.regroup(WINDOWED, lake, 96)
    write(path_of(lake), json.dumps(before | {"key_groups": 96}).encode())
    assert numbers(lake, WINDOWED) == (96, 96)
    land(lake, WINDOWED, log, 60)
    engine.run_unbounded(declaring(WINDOWED, 96), lake, until_caught_up=True)
    check(lake, WINDOWED, log)


@pytest.mark.feature("K10")
def test_savepoints_and_forks_have_the_bundles(engine: Computing, tmp_path: Path) -> None:
    code, lake, log = declaring(WINDOWED, MANY), Lake(str(tmp_path / "lake")), disorder(WINDOWED, 5, 120)
    land(lake, code, log, 0, 60)
    engine.run_unbounded(code, lake, until_caught_up=True)
    made = savepoints.create(code.name, lake)
    land(lake, code, log, 60)
    aside = fork(lake, made, str(tmp_path / "fork"))
    engine.run_unbounded(WINDOWED, aside, until_caught_up=True)
    assert numbers(aside, code) == (MANY, 64)
    check(aside, code, log)


def test_an_arm_that_begins_anew_has_the_parts_among_which_its_sample_was_drawn(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    wide = declaring(WINDOWED, MANY)
    for among, parts in ((64, (64, MANY)), (100, (100, MANY))):
        sample.keep(lake, wide.name, (1, 2), among)
        assert (sample.of(lake, wide.name), sample.among(lake, wide.name)) == ((1, 2), among)
        step = sample.in_effect(lake, wide).stateful
        assert step is not None
        assert (step.groups, step.key_groups, step.only) == (*parts, (1, 2))
    sample.keep(lake, wide.name, (1, 2))  # as releases before have written it
    assert (sample.of(lake, wide.name), sample.among(lake, wide.name)) == ((1, 2), None)
    step = sample.in_effect(lake, wide).stateful
    assert step is not None
    assert (step.groups, step.key_groups, step.only) == (MANY, None, (1, 2))


@pytest.mark.feature("K10")
def test_an_arm_that_begins_anew_goes_on_whatever_number_its_code_declares(engine: Computing, tmp_path: Path) -> None:
    """1,000 key groups do not divide evenly among the 128 of which the sample of all arms was drawn."""
    code, log, some = declaring(WINDOWED, 1_000), disorder(WINDOWED, 5, 120), tuple(range(0, 128, 2))
    lakes = [Lake(str(tmp_path / name)) for name in ("declares", "leaves_out")]
    for lake, arm in zip(lakes, (code, WINDOWED), strict=True):
        sample.keep(lake, arm.name, some, 128)
        for start, stop in ((0, 60), (60, None)):
            land(lake, arm, log, start, stop)
            engine.run_unbounded(arm, lake, until_caught_up=True)
    assert [numbers(lake, code) for lake in lakes] == [(1_000, 128), (128, 128)]
    ours, theirs = ({str(row) for row in final([outputs(lake, code)[""]])} for lake in lakes)
    assert ours == theirs
    assert ours
