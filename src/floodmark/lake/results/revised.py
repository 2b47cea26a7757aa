"""Outputs whose rows take back rows of any event time, as their stream has followed a rebuild: who may read them."""

from __future__ import annotations

from floodmark.compiler.following import obstacle
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.spec.graph.operator import Operator


def check(operator: Operator, lake: Lake) -> None:
    """Check that an operator whose results depend on event time reads no table whose stream has followed a rebuild as a difference.

    Rows of the difference are late for such an operator: what they take back would stay in its results.

    Raises:
        LifecycleError: LIFECYCLE-045, it does.
    """
    for input_ in operator.inputs:
        if input_.upstream is None or not history.revised(lake.input(input_)):
            continue
        reason = obstacle(operator.canonical())
        if reason:
            upstream = input_.upstream.operator.name
            where = f"operator '{operator.name}', input '{input_.name}'"
            expected, got = (
                "rows in the order of their event time",
                f"those of a stream that has followed a rebuild, and {reason}",
            )
            fix = f"Compute '{upstream}' anew first: floodmark run {upstream} --unbounded --from-scratch --until-caught-up"
            raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-045")
