"""Verbs on streams in an order that nobody has chosen, killed on the way: their tables end exactly right, and so does what reads them row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from restated import standing
from s3_server import Plan
from verbs import COMMITS, KINDS, Schedule, drawn, played, schedules, source, version

from floodmark import Settings
from floodmark.control.processes.engine import Computing, computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    from s3_server import Proxy, Server


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


@pytest.mark.feature("V1", "V3", "V4", "V9", "K11")
@schedules("windows", "once", "rows")
@pytest.mark.few(1)
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


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in KINDS for seed in range(1, 7)])
def test_whatever_comes_after_what_in_a_bucket_whose_store_fails(
    s3: Server,
    s3_proxy: Proxy,
    truths: Callable[[str], dict[str, Counter[Any]]],
    request: pytest.FixtureRequest,
    kind: str,
    seed: int,
) -> None:
    """503, slow answers, 409, and answers that are lost after a put took effect, in every verb."""
    truth, lake = truths(kind), Lake(f"{s3.bucket()}/lake")
    engine = computing(Settings(lake=lake.root, engine="embedded", memory=300))
    s3_proxy.plan(Plan(seed=seed, share=0.05))
    with played(Schedule(engine, lake, kind, drawn(request, seed))) as schedule:
        schedule.land_rest()
        assert s3_proxy.faults()
        s3_proxy.plan()
        schedule.end(truth)
