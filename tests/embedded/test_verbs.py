"""Verbs on streams in an order that nobody has chosen, killed on the way: their tables end exactly right, and so does what reads them row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restated import standing
from verbs import COMMITS, Schedule, drawn, played, schedules, source, version

from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake


@pytest.fixture(scope="module")
def truths(embedded: Computing, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Counter[Any]]]:
    """Kind -> what stands in each output of one run over all of the log."""
    known: dict[str, dict[str, Counter[Any]]] = {}

    def truth(kind: str) -> dict[str, Counter[Any]]:
        if kind not in known:
            lake, one = Lake(str(tmp_path_factory.mktemp(kind))), version(kind, "plain")
            embedded.land(source(COMMITS), lake, end=True)
            embedded.run_bounded(one, lake, Interval())
            known[kind] = {output.table: standing(lake.output(output.table)) for output in one.outputs}
        return known[kind]

    return truth


@pytest.mark.feature("V1", "V3", "V4", "K11")
@schedules("windows", "once", "rows")
def test_whatever_comes_after_what(
    embedded: Computing,
    truths: Callable[[str], dict[str, Counter[Any]]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    seed: int | None,
) -> None:
    truth = truths(kind)
    with played(Schedule(embedded, Lake(str(tmp_path / "lake")), kind, drawn(request, seed))) as schedule:
        schedule.land_rest()
        schedule.end(truth)
