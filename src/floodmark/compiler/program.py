"""The program of an operator as nodes and edges, for a picture: inputs, steps, outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from floodmark.compiler.describe import describe, setting
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.functions import Function


def program(operator: Operator) -> dict[str, Any]:
    """The program of an operator, as JSON values.

    Shape: ``nodes``, each with ``id``, ``kind`` (``input``, ``step``, ``stateful``, ``output``), ``label``, and ``table`` of inputs and outputs;
    ``edges``, each from one id to another.
    """
    nodes: dict[str, dict[str, str]] = {}
    edges: list[list[str]] = []
    names: dict[steps.Step, str] = {}
    tables = {one.name: one.table for one in operator.inputs}

    def named(step: steps.Step) -> str:
        if step in names:
            return names[step]
        if isinstance(step, steps.Read):
            name = names[step] = f"input {step.input}"
            nodes[name] = {"kind": "input", "label": tables[step.input], "table": tables[step.input]}
            return name
        parents = [named(parent) for parent in step.parents]
        name = names[step] = f"step {len(names)}"
        kind = "stateful" if isinstance(step, steps.STATEFUL) else "step"
        nodes[name] = {"kind": kind, "label": _label(step)}
        edges.extend([parent, name] for parent in parents)
        return name

    results = dict(operator.results)
    for output in operator.outputs:
        origins = [results[output.name]] if output.side is None else list(_origins(operator, output))
        before = [named(step) for step in origins]
        name = f"output {output.table}"
        nodes[name] = {"kind": "output", "label": output.table, "table": output.table}
        edges.extend([one, name] for one in dict.fromkeys(before))
    return {"nodes": [{"id": name, **node} for name, node in nodes.items()], "edges": edges}


def _origins(operator: Operator, output: Output) -> Iterator[steps.Step]:
    """The steps whose rows a side output has: the stateful step, and for a quarantine all steps that set rows aside."""
    if output.side != "quarantine":
        for stage in operator.stages:
            if (stage.late == "side_output") if output.side == "late" else output.name in dict(stage.sides):
                yield stage
        return
    seen: list[steps.Step] = [result for _, result in operator.results]
    while seen:
        step = seen.pop()
        if getattr(step, "on_error", None) == "quarantine" or (
            isinstance(step, steps.Expect) and steps.quarantines(step)
        ):
            yield step
        seen.extend(step.parents)


def _label(step: steps.Step) -> str:
    """A step in one line; a stateful step with its keys and window."""
    form, function = step.canonical(), ""
    match step:
        case steps.FlatMap():
            function = getattr(step.function, "__name__", "function")
        case steps.WindowAggregate(function=Function(call=call)):
            function = getattr(call, "__name__", type(call).__name__)
        case steps.KeyedProcess():
            function = type(step.function.function).__name__
    around = [text for name in ("keys", "window") if (text := setting(name, form.get(name)))]
    return " ".join([describe(form, function), *around])
