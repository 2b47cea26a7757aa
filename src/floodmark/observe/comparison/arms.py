"""Comparison of the arms of an experiment: each with the first one, output by output, as far as the slower of the two is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.core.time import END
from floodmark.lake.experiments import comparison_of
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import Timeline
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.pairing import SIDES, other_keys
from floodmark.lifecycle.plan import Deployed
from floodmark.observe.comparison.closed import MINUTE, advance, begun, read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.reasons import explained
from floodmark.observe.comparison.sides import Side
from floodmark.spec.operator import Operator

_APART = "LIFECYCLE-082"
"""Rows that cannot be paired: other outputs and arms are compared all the same."""
_HOUR = 60 * MINUTE
"""Cell of rows without windows: so long a stretch of event time counts as one where the means of columns are compared."""


def compare_arms(
    lake: Lake, experiment: Experiment, operator: Operator | None, how: How
) -> Mapping[str, Mapping[str, Comparison | str]]:
    """Look at what has closed since the last look, and add it to what is known; what the stream had found before the experiment is not compared.

    Args:
        lake: of the experiment.
        experiment: in any state but ``starting``.
        operator: as the code has it now, which says how results are keyed; None where it has gone.
        how: it is done; tolerances and columns stay those of the first look, and need not be given again. An experiment's rule has its own.

    Returns:
        Arm -> output -> what was found of it beside the first arm, or why it cannot be compared; without those of which nothing
        has closed in both.

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
    """Add what has closed since the last look to each comparison that was begun, as it was begun.

    Args:
        lake: of the experiment.
        experiment: that runs.
        operator: as the code of an arm has it.

    Raises:
        LifecycleError: as ``advance``.
    """
    first, *others = experiment.arms
    for arm in others:
        for table in _outputs(experiment.operator, first, arm):
            _looked(lake, experiment, operator, (first, arm), table, None)


def _outputs(operator: str, *arms: Arm) -> list[str]:
    """Those that all of some arms have."""
    known = [Timeline.current(Lake(arm.root), operator).identity.deployed() for arm in arms]
    tables = [set(one.tables) if one is not None else set() for one in known]
    return sorted(one for one in set.intersection(*tables) if not one.endswith(SIDES))


def final(left: Side, right: Side, definitions: Iterable[Deployed | None]) -> int:
    """Event time before which neither side is revised any more, ms: one that is further has used late rows the other has not read yet.

    Args:
        left: the one.
        right: the other.
        definitions: by which the two are written.
    """
    reached = min((side.reached for side in (left, right) if side.reached is not None), default=END)
    return reached if reached >= END else reached - lateness(definitions)


def lateness(definitions: Iterable[Deployed | None]) -> int:
    """The longest that a window of any of these waits for late rows, ms."""
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
    if experiment.promote is not None and how is not None:  # one look of a person must not refuse those of the rule
        bounds = experiment.promote.columns
        how = replace(how, tolerances={name: one for name, one in bounds.items() if name in left.types}, without=())
    folder = comparison_of(lake, experiment.name, arms[1].name, table)
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
