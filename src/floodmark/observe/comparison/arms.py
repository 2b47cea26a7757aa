"""Comparison of the arms of an experiment: each arm with the first arm, output by output, up to the progress of the slower arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.time import END
from floodmark.lake.folder.mirrored import ChangedMeanwhileError, mirrored
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.experiments import comparison_of
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.pairing import SIDES, other_keys
from floodmark.lifecycle.plan import Deployed
from floodmark.observe.comparison.closed import MINUTE, advance, begun, beside, read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.reasons import explained
from floodmark.observe.comparison.sides import Side
from floodmark.spec.graph.operator import Operator

_APART = "LIFECYCLE-082"
"""Code of the error for rows that cannot be paired. Other outputs and arms are compared all the same."""
_HOUR = 60 * MINUTE
"""Length, ms, of a cell of event time for rows without windows. The means of columns are compared per cell."""


def compare_arms(
    lake: Lake, experiment: Experiment, operator: Operator | None, how: How
) -> Mapping[str, Mapping[str, Comparison | str]]:
    """Compare the results that have closed since the last call, and add the differences to the comparison. Results from before the experiment are left out.

    Args:
        lake: the lake of the experiment.
        experiment: in any state but ``starting``.
        operator: the operator in the current code, which defines the keys of results; None if the code no longer has it.
        how: how to compare. Tolerances and columns stay those of the first call and may be left out later. If the experiment has a rule,
            the rule's tolerances apply.

    Returns:
        Arm -> output -> the comparison with the first arm, or the reason why the output cannot be compared. Outputs of which nothing
        has closed in both arms are absent.

    Raises:
        LifecycleError: as ``advance``.
    """
    first, *others = experiment.arms
    return {
        arm.name: {
            table: comparison
            for table in _outputs(experiment.operator, first, arm)
            if (comparison := _looked(lake, experiment, operator, (first, arm), table, how)) is not None
        }
        for arm in others
    }


def carry_on(lake: Lake, experiment: Experiment, operator: Operator) -> None:
    """Continue each comparison that was begun, with its settings: compare the results that have closed since the last call.

    Args:
        lake: the lake of the experiment.
        experiment: a running experiment.
        operator: the operator in the code of an arm.

    Raises:
        LifecycleError: as ``advance``.
    """
    first, *others = experiment.arms
    for arm in others:
        for table in _outputs(experiment.operator, first, arm):
            _looked(lake, experiment, operator, (first, arm), table, None)


def _outputs(operator: str, *arms: Arm) -> list[str]:
    """Outputs that all of the arms have, sorted, without tables whose names end with one of ``SIDES``."""
    known = [Timeline.current(Lake(arm.root), operator).identity.deployed() for arm in arms]
    tables = [set(one.tables) if one is not None else set() for one in known]
    return sorted(one for one in set.intersection(*tables) if not one.endswith(SIDES))


def final(left: Side, right: Side, definitions: Iterable[Deployed | None]) -> int:
    """Event time, ms, before which neither side is revised any more: the slower side's progress minus the allowed lateness.

    A faster side may have used late rows that the slower side has not read yet.

    Args:
        left: the left side.
        right: the right side.
        definitions: deployed definitions of the operators that write the two sides.
    """
    reached = min((side.reached for side in (left, right) if side.reached is not None), default=END)
    return reached if reached >= END else reached - lateness(definitions)


def lateness(definitions: Iterable[Deployed | None]) -> int:
    """The longest allowed lateness of a window in any of the definitions, ms."""
    return max((_lateness(one.graph) for one in definitions if one is not None), default=0)


def _lateness(graph: Any) -> int:
    parts = graph.values() if isinstance(graph, Mapping) else graph if isinstance(graph, (list, tuple)) else ()
    own = graph.get("allowed_lateness", 0) if isinstance(graph, Mapping) else 0
    return max([own if isinstance(own, int) else 0, *map(_lateness, parts)])


def _looked(
    lake: Lake, experiment: Experiment, operator: Operator | None, arms: tuple[Arm, Arm], table: str, how: How | None
) -> Comparison | str | None:
    paths = [Lake(arm.root).output(table) for arm in arms]
    if not all(DeltaTable.is_deltatable(path) for path in paths):
        return None
    output = next((one for one in operator.outputs if one.table == table), None) if operator is not None else None
    left, right = (
        replace(Side.of(path, output, operator), name=arm.name) for path, arm in zip(paths, arms, strict=True)
    )
    if (
        experiment.promote is not None and how is not None
    ):  # tolerances that a person passes must not make later comparisons by the rule fail
        bounds = experiment.promote.columns
        how = replace(how, tolerances={name: one for name, one in bounds.items() if name in left.types}, without=())
    home = comparison_of(lake, experiment.name, arms[1].name, table)
    try:
        with mirrored(home) as folder:
            return _advanced(folder, experiment, (left, right), arms, table, how)
    except ChangedMeanwhileError:
        raise beside(home) from None


def _advanced(
    folder: str, experiment: Experiment, sides: tuple[Side, Side], arms: tuple[Arm, Arm], table: str, how: How | None
) -> Comparison | str | None:
    """Continue a comparison whose files are in a folder of this machine."""
    left, right = sides
    before = begun(folder, left, right)
    if before is None and how is None:
        return None
    if before is not None and (how is None or not (how.grain or how.tolerances or how.without)):
        how = replace(how or How(), grain=before.grain, tolerances=before.tolerances, without=before.without)
    assert how is not None
    known = [Timeline.current(Lake(arm.root), experiment.operator).identity.deployed() for arm in arms]
    graphs = [one.graph for one in known if one is not None]
    if len(graphs) == len(arms) and (key_difference := other_keys(*graphs)):
        return f"Rows cannot be paired: '{right.name}' has {key_difference}"
    cell = MINUTE if "window_end" in left.types else _HOUR
    try:
        advance(folder, left, right, how, until=final(left, right, known), since=experiment.since, cell=cell)
    except CapabilityError as error:
        return str(error)
    except LifecycleError as error:
        if error.code != _APART:
            raise
        return str(error)
    comparison = read_comparison(folder)
    return None if comparison is None else explained(comparison, table, arms)
