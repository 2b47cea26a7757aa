"""What of a workspace can be asked: outputs whose results have a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from floodmark.core.errors import closest
from floodmark.serve.refusals import Missing, Unanswerable
from floodmark.serve.values import KeyColumn, key_columns
from floodmark.spec.assets.delivery import Delivery, Route
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import WindowAggregate
from floodmark.spec.windowing.triggers import Purging
from floodmark.spec.windowing.windows import Count
from floodmark.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Followed:
    """An output whose log a copy follows; without code of the user's, so that it can be handed to another process.

    Args:
        route: the output as a delivery of last values.
        key_names: names of the key columns.
    """

    route: Route
    key_names: tuple[str, ...]

    @property
    def output(self) -> Output:
        """The output."""
        return self.route.output

    @property
    def name(self) -> str:
        """Name of its table."""
        return self.route.output.table


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """An output that can be asked by key.

    Args:
        operator: that writes the output.
        output: whose last values are asked.
        keys: columns by which a result is one, in the order in which ranges go through them.
    """

    operator: Operator
    output: Output
    keys: tuple[KeyColumn, ...]

    @property
    def name(self) -> str:
        """Name of the output's table."""
        return self.output.table

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(key.name for key in self.keys)

    @property
    def followed(self) -> Followed:
        """What a copy needs to know of it."""
        stripped = Operator(self.operator.name, (), (), isolation=self.operator.isolation)
        output = replace(self.output, revisable=True)
        route = Route(name=f"serve_{self.name}", operator=stripped, output=output, delivery=Delivery())
        return Followed(route, self.key_names)


def readable(workspace: Workspace) -> dict[str, Readable]:
    """Name -> output that can be asked by key."""
    answers = {}
    for operator in workspace.operators:
        for output in operator.outputs:
            keys = key_columns([output.schema[name] for name in output.keys])
            if keys and _has_last_values(operator, output):
                answers[output.table] = Readable(operator=operator, output=output, keys=keys)
    return answers


def named(workspace: Workspace, outputs: Mapping[str, Readable], name: str) -> Readable:
    """The output of that name, with or without ``__current``.

    Raises:
        Missing: SERVE-003, there is no such output.
        Unanswerable: SERVE-004, its results have no key.
    """
    table = name.removesuffix("__current")
    if table in outputs:
        return outputs[table]
    every = [output.table for operator in workspace.operators for output in operator.outputs]
    where = f"output '{name}'"
    if table in every:
        fix = (
            f"Results by key are those of windows with a key, and those that are revised by key. Read its table instead: {table}. "
            f"Outputs that can be asked: {', '.join(outputs) or 'none'}."
        )
        raise Unanswerable(where, "results with a key", "rows without one", fix, code="SERVE-004")
    fix = f"{closest(table, every)}Outputs that can be asked: {', '.join(outputs) or 'none'}."
    raise Missing(where, "an output of the workspace", "none of that name", fix, code="SERVE-003")


def _has_last_values(operator: Operator, output: Output) -> bool:
    """Whether the last row of a key is its value: not for panes that only add to earlier ones, and not for windows that share a key."""
    if output.side is not None:
        return False
    if output.current is not None:
        return True
    step = operator.stateful
    if not isinstance(step, WindowAggregate) or isinstance(step.window, Count):
        return False
    return step.accumulation != "discarding" and not isinstance(step.trigger, Purging)
