"""Verbs on streams in an order that nobody has chosen, killed on the way: their tables end exactly right, and so does what reads them row by row."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restated import standing
from seeds import seed_of
from verbs import COMMITS, KINDS, Schedule, source, version

from floodmark.control.engine import Computing
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.lake.paths import Lake


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


SOAK = [pytest.param(kind, None, marks=pytest.mark.soak, id=f"{kind}-drawn-{n}") for kind in KINDS for n in range(12)]


@pytest.mark.feature("V1", "V3", "V4", "K11")
@pytest.mark.parametrize(("kind", "seed"), [*((kind, number) for number, kind in enumerate(KINDS)), *SOAK])
def test_whatever_comes_after_what(
    embedded: Computing,
    truths: Callable[[str], dict[str, Counter[Any]]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    seed: int | None,
) -> None:
    """One known schedule of each kind; ``make soak`` draws others."""
    seed = int(os.environ.get("FLOODMARK_SEED", seed_of(request.node.name) if seed is None else seed))
    schedule, truth = Schedule(embedded, Lake(str(tmp_path / "lake")), kind, seed), truths(kind)
    monkeypatch.setattr(crash, "point", schedule.point)
    try:
        for _ in range(15):
            schedule.step()
        schedule.land_rest()
        schedule.end(truth)
    except (AssertionError, FloodmarkError) as error:
        text = "\n".join(schedule.told)
        raise AssertionError(f"replay {kind} with FLOODMARK_SEED={seed}\n{text}\n{error}") from error
