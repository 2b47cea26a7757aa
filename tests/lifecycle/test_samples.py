"""Arms over a sample of the keys: with what the other keys give, they make up the whole, whatever was in the state when they parted."""

from __future__ import annotations

from collections import defaultdict
from operator import or_
from pathlib import Path
from typing import Any

import pytest
from events import disorder
from streams import ONCE, PAIRED, VISITS, WATCHED, WINDOWED, check

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream import sample
from floodmark.spec.graph.steps import KEY_GROUPS
from floodmark.testing.lakes import land, outputs
from floodmark.testing.runs import final

ROWS, SHARED, STOPS = 160, 70, (110, None)
KEYS = {ONCE.name: "rest"}
SOME = tuple(range(0, KEY_GROUPS, 2))
OTHERS = tuple(range(1, KEY_GROUPS, 2))


def rows(lake: Lake, code: Operator) -> dict[str, dict[Any, list[Any]]]:
    """Output -> key -> its rows, without those that were taken back."""
    found: dict[str, dict[Any, list[Any]]] = {}
    for name, table in outputs(lake, code).items():
        of_keys = found.setdefault(name, defaultdict(list))
        for one in final([table]):
            of_keys[one[KEYS.get(code.name, "key")]].append(one)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("code", [WINDOWED, WATCHED, PAIRED, VISITS, ONCE], ids=lambda code: code.name)
@pytest.mark.few(2)
def test_an_arm_computes_its_keys_and_nothing_of_the_others(engine: Computing, tmp_path: Path, code: Operator) -> None:
    """Two forks with some of the key groups each, one with the rest: each key goes on in one of them as in the stream itself."""
    lake, log = Lake(str(tmp_path / "lake")), disorder(code, 5, ROWS)
    land(lake, code, log, 0, SHARED)
    engine.run_unbounded(code, lake, until_caught_up=True)
    began, before = savepoints.create(code.name, lake), rows(lake, code)
    arms = [fork(lake, began, str(tmp_path / name)) for name in ("some", "others")]
    for arm, groups in zip(arms, (SOME, OTHERS), strict=True):
        sample.keep(arm, code.name, groups)
    at = SHARED
    for stop in STOPS:
        land(lake, code, log, at, stop)
        at = stop or at
        for place in (*arms, lake):
            engine.run_unbounded(code, place, until_caught_up=True)
    check(lake, code, log)
    for name, whole in rows(lake, code).items():
        found, went_on = [rows(arm, code)[name] for arm in arms], [0, 0]
        for key, expected in whole.items():
            exact = [one[key] == expected for one in found]
            stood = [one[key] == before[name][key] for one in found]
            assert exact[0] or exact[1], (name, key)
            assert all(map(or_, exact, stood)), (name, key)
            went_on = [count + (is_so and not stays) for count, is_so, stays in zip(went_on, exact, stood, strict=True)]
        assert name or all(went_on), "each of them has keys"
        assert not set().union(*found) - whole.keys(), name
