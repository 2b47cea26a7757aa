"""Explain: what an operator will do, read off the graph that runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import assert_never

from floodmark.core.time import describe_span
from floodmark.spec import steps
from floodmark.spec.operator import Operator
from floodmark.spec.windows import Count, Global, describe_window


def explain(operator: Operator) -> tuple[str, dict[str, object]]:
    """An operator in plain text, and the same as JSON values.

    Shape: version, inputs, one line per step of each output, then the tables with their columns.
    """
    lines = [operator.version]
    lines += [f"  {line}" for line in operator.description.splitlines()]
    for given in operator.inputs:
        origin = f"output of {given.upstream.operator.version}" if given.upstream else "source"
        lines.append(f"input {given.name}: table '{given.table}' ({origin}){', revisable' if given.revisable else ''}")
    for name, result in operator.results:
        lines.append(f"result{f' {name}' if name else ''}:")
        lines += [f"  {line}" for line in _tree(result, 0)]
    for output in operator.outputs:
        sides = {"late": "late rows", "quarantine": "rows and panes a function failed for", "side": "side output"}
        kind = sides[output.side] if output.side else "changelog, with a __current table" if output.current else "rows"
        lines.append(f"table {output.table} ({kind}): {output.schema.describe()}")
    lines += _code(operator)
    lines += [f"warning: {warning}" for warning in operator.warnings]
    document = operator.canonical() | {
        "version": operator.version,
        "fingerprint": operator.fingerprint,
        "description": operator.description,
        "tables": [
            {"table": o.table, "columns": o.schema.canonical(), "revisable": o.revisable} for o in operator.outputs
        ],
        "warnings": list(operator.warnings),
        "code": [asdict(part) for part in operator.followed.parts],
        "packages": operator.followed.packages,
    }
    return "\n".join(lines), document


def _code(operator: Operator) -> list[str]:
    """What the version follows of its functions, and what it cannot."""
    lines = []
    for part in operator.followed.parts:
        if part.kind == "unknown":
            lines.append(f"  not followed: {part.name}; it {part.place}")
        else:
            lines.append(f"  {part.kind} {part.name} ({Path(part.place).name})")
    lines += [f"  package {name} {version}: by name" for name, version in operator.followed.packages.items()]
    return ["code:", *lines] if lines else []


def _tree(step: steps.Step, depth: int) -> list[str]:
    """A step and, further in, what it reads."""
    found = [f"{'  ' * depth}{line}" for line in _words(step)]
    ports = getattr(step, "ports", ())
    if ports:
        union = step.parents[0]
        for part in union.parents:
            assert isinstance(part, steps.Project)
            port = ports[int(dict(part.columns)[steps.TAG])]
            found.append(f"{'  ' * (depth + 1)}{port.name}:")
            found += _tree(part.parents[0], depth + 2)
        return found
    for parent in step.parents:
        found += _tree(parent, depth + 1)
    return found


def _words(step: steps.Step) -> list[str]:
    match step:
        case steps.Read():
            return [f"read {step.input}"]
        case steps.Filter():
            return [f"filter {step.condition}"]
        case steps.Project():
            new = [f"{name} = {text}" for name, text in step.columns if name != text]
            kept = [name for name, text in step.columns if name == text]
            return [f"columns {', '.join([*kept, *new])}"]
        case steps.FlatMap():
            return [f"flat_map {getattr(step.function, '__name__', 'function')} -> {step.schema.describe()}"]
        case steps.Union():
            return [f"union of {len(step.parents)}"]
        case steps.WindowAggregate():
            return _window(step)
        case steps.KeyedProcess():
            return _process(step)
        case steps.IntervalJoin():
            return _join(step)
        case _:
            assert_never(step)


def _process(step: steps.KeyedProcess) -> list[str]:
    function = step.function.function
    lines = [f"process {type(function).__name__}  (state: uid '{step.uid}', {step.groups} key groups)"]
    lines.append(
        f"  per {', '.join(step.keys)}" + (f", in order of {step.order.replace('_', ' ')}" if step.order else "")
    )
    for name, state in {**function.states(), **function.broadcast_states()}.items():
        ttl = f", forgotten {describe_span(state.ttl)} after it was written" if state.ttl else ""
        lines.append(f"  {state.shape} state {name}: {state.kind.text}{ttl}")
    lines += [f"  timer {name}: {timer.time} time" for name, timer in function.timers().items()]
    lines += [f"  side output {name}: {schema.describe()}" for name, schema in step.sides]
    return lines


def _join(step: steps.IntervalJoin) -> list[str]:
    keys = ", ".join(step.keys)
    kept = f"left rows are kept {describe_span(max(step.upper, 0))}, right rows {describe_span(max(-step.lower, 0))}"
    return [
        f"interval join ({step.kind}) on {keys}  (state: uid '{step.uid}', {step.groups} key groups)",
        f"  the right row from {describe_span(step.lower)} to {describe_span(step.upper)} after the left; {kept}; late rows are dropped and counted",
    ]


def _window(step: steps.WindowAggregate) -> list[str]:
    keys = ", ".join(step.keys) or "all rows together"
    late = "to the late output" if step.late == "side_output" else "dropped and counted"
    lateness = f"; rows up to {describe_span(step.allowed_lateness)} late count" if step.allowed_lateness else ""
    lines = [
        f"{_computed(step)}  (state: uid '{step.uid}', {step.groups} key groups)",
        f"  per {keys} and window {describe_window(step.window)}: {_closing(step)}{lateness}; later rows are {late}",
    ]
    panes = "each pane replaces the one before" if step.revises else "each pane holds what is new"
    if step.trigger is not None:
        lines.append(f"  {panes}")
    if step.evictor is not None:
        lines.append(f"  rows are kept; {type(step.evictor).__name__} takes some out {step.evictor.when} the function")
    if not step.columnar:
        lines.append("  row by row" + (f", in order of {step.order.replace('_', ' ')}" if step.order else ""))
    return lines


def _computed(step: steps.WindowAggregate) -> str:
    measures = []
    for name, aggregate in step.aggregates:
        told = aggregate.canonical()
        by = f", by {told['by']}" if told.get("by") else ""
        measures.append(f"{name} = {told['aggregate']}({aggregate.expression or ''}{by})")
    if step.function is None:
        return f"aggregate {', '.join(measures)}"
    name = getattr(step.function.call, "__name__", type(step.function.call).__name__)
    if step.reduces:
        return f"reduce {name}"
    return f"process {name} over {', '.join(measures) or 'rows'} -> {', '.join(step.own_columns)}"


def _closing(step: steps.WindowAggregate) -> str:
    clock = "the clock" if step.time == "processing" else "progress"
    if step.trigger is not None:
        return f"fires {step.trigger.describe()}"
    match step.window:
        case Global():
            return "fires at the end of input"
        case Count():
            return "fires when it is full"
        case _:
            return f"fires when {clock} reaches its end"
