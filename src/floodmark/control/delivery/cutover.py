"""CutoverPlan-overs of a stream to an arm of an experiment: the instant before which the stream's results stay."""

from __future__ import annotations

from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints, switch
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.cutover import CutoverPlan, chosen, final, numbered, parse
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.savepoint import Manifest
from floodmark.spec.values.schema import first_sequence


def check_cutover(lake: Lake, made: Experiment, arm: Arm, cutover: str) -> None:
    """Check that a stream's results before a cut-over are final. The progress of the arm is not checked yet.

    Args:
        lake: lake of the stream.
        made: the experiment.
        arm: the arm that is to become the stream.
        cutover: an instant in ISO 8601, or ``closed`` for the latest possible one; empty for no cut-over.

    Raises:
        LifecycleError: LIFECYCLE-110 a cut-over by event time is impossible, LIFECYCLE-111 results before the instant are not final.
    """
    if cutover:
        parted = savepoints.find(lake, made.savepoint).manifest
        _instant(parted, made, arm, cutover, [Timeline.current(lake, made.operator)])


def cutover_between(lake: Lake, made: Experiment, arm: Arm, cutover: str) -> CutoverPlan | None:
    """The cut-over that decides which results of a stream stay; None without a cut-over: then only results before the common savepoint stay.

    Args:
        lake: lake of the stream.
        made: the experiment.
        arm: the arm that is to become the stream.
        cutover: as in ``check_cutover``.

    Raises:
        LifecycleError: as ``check_cutover``.
    """
    if not cutover:
        return None
    beside, parted = Lake(arm.root), savepoints.find(lake, made.savepoint).manifest
    theirs = Timeline.current(beside, made.operator)
    at = _instant(parted, made, arm, cutover, [Timeline.current(lake, made.operator), theirs])
    deployed = theirs.identity.deployed()
    if deployed is None:
        return None
    paths = {table: lake.output(table) for table in deployed.tables}
    staying = {table: DeltaTable(path).version() for table, path in paths.items() if DeltaTable.is_deltatable(path)}
    plan = CutoverPlan(
        at=at, since=first_sequence(parted.batch + 1) if numbered(deployed.graph) else None, staying=staying
    )
    switch.check_cutover(lake, beside, plan)
    return plan


def _instant(parted: Manifest, made: Experiment, arm: Arm, cutover: str, timelines: list[Timeline]) -> int:
    """The instant of a cut-over, ms, at which results are final in all given timelines. The first timeline is the original stream's."""
    where = f"experiment '{made.name}', cut-over to arm '{arm.name}'"
    if arm.anew or timelines[0].number != parted.timeline:
        fix = "Leave the cut-over out: all its results are the new version's then."
        got = "computed all input anew" if arm.anew else f"went back, or another way, since {made.savepoint}"
        expected = "versions that went on from one savepoint"
        raise LifecycleError(where, expected, f"one that {got}", fix, code="LIFECYCLE-110")
    reached = [
        (one.identity.deployed(), one.checkpoint.final_progress(one.checkpoint.last_committed())) for one in timelines
    ]
    latest = min(final(deployed.graph, progress, where) for deployed, progress in reached if deployed is not None)
    return chosen(parse(cutover, where), latest, where)
