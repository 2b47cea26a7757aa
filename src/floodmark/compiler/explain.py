"""Explain: an operator's steps, tables and code for people, from the graph that runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from floodmark.compiler.describe import describe, order_by, over, pattern, ranking, row_pattern, selected, window
from floodmark.core.time import describe_span
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.keyed.over import Over, OverChanging
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.keyed.top import Top, TopAtOnce
from floodmark.spec.patterns.matching import PatternMatching
from floodmark.spec.patterns.recognised import RowMatching
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.values.functions import Function
from floodmark.spec.values.schema import TAG
from floodmark.spec.windowing.windows import Count, Global


def explain(operator: Operator) -> tuple[str, dict[str, object]]:
    """(operator) -> its description as plain text and as JSON values.

    Shape: version, inputs, one line per step of each output, then the tables with their columns.
    """
    lines = [operator.version]
    lines += [f"  {line}" for line in operator.description.splitlines()]
    for input_ in operator.inputs:
        origin = f"output of {input_.upstream.operator.version}" if input_.upstream else "source"
        lines.append(
            f"input {input_.name}: table '{input_.table}' ({origin}){', revisable' if input_.revisable else ''}"
        )
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
    """The parts of the user's code that the version follows, those it cannot follow, and packages."""
    lines = []
    for part in operator.followed.parts:
        if part.kind == "unknown":
            lines.append(f"  not followed: {part.name}; it {part.place}")
        else:
            lines.append(f"  {part.kind} {part.name} ({Path(part.place).name})")
    lines += [f"  package {name} {version}: by name" for name, version in operator.followed.packages.items()]
    return ["code:", *lines] if lines else []


def _tree(step: steps.Step, depth: int) -> list[str]:
    """A step, and indented below it the steps it reads."""
    lines = [f"{'  ' * depth}{line}" for line in (_line(step), *_details(step))]
    if isinstance(step, steps.STATEFUL) and step.ports:
        for part in step.parents[0].parents:
            assert isinstance(part, steps.Project)
            port = step.ports[int(dict(part.columns)[TAG])]
            lines += [f"{'  ' * (depth + 1)}{port.name}:", *_tree(part.parents[0], depth + 2)]
        return lines
    return lines + [line for parent in step.parents for line in _tree(parent, depth + 1)]


def _line(step: steps.Step) -> str:
    """The step in one line, with the name of its function and where its state is."""
    function = ""
    match step:
        case steps.FlatMap():
            function = f"{getattr(step.function, '__name__', 'function')} -> {step.schema.describe()}"
        case steps.WindowAggregate(function=Function(call=call)):
            function = getattr(call, "__name__", type(call).__name__)
        case steps.KeyedProcess():
            function = type(step.function.function).__name__
    state = (
        f"  (state: uid '{step.uid}', {step.key_groups or step.groups} key groups)"
        if isinstance(step, steps.STATEFUL)
        else ""
    )
    return describe(step.canonical(), function) + state


def _details(step: steps.Step) -> list[str]:
    """Details of a stateful step or of a call, one per line; none for other steps."""
    match step:
        case steps.Call(function=Lookup(table=table, keys=keys, kind=kind)):
            rows = f"{kind} lookup of the current rows of {table.name} by {', '.join(keys)}: {table.path}"
            about = f"an answer about a key holds for {describe_span(step.cache_for)} of event time"
            return [f"  {rows}; {about}; answers are recorded with their version as {step.answers}"]
        case steps.Call():
            calls = f"{step.concurrency} calls at a time, each for at most {describe_span(step.timeout)}, {step.retries} retries"
            about = f"; once per {', '.join(step.cache)} and {describe_span(step.cache_for)}" if step.cache else ""
            return [f"  {calls}{about}; answers are recorded as {step.answers}"]
        case steps.WindowAggregate():
            return _window(step)
        case steps.KeyedProcess():
            return _process(step)
        case steps.IntervalJoin():
            left, right = describe_span(max(step.upper, 0)), describe_span(max(-step.lower, 0))
            retention = f"left rows are kept {left}, right rows {right}; late rows are dropped and counted"
            return [f"  per {', '.join(step.keys)}: the right row is that much later than the left one; {retention}"]
        case _:
            return []


def _order(step: steps.Stateful) -> str:
    return f", in order of {step.order.replace('_', ' ')}" if step.order else ""


def _process(step: steps.KeyedProcess) -> list[str]:
    function = step.function.function
    if isinstance(function, PatternMatching):
        return _pattern(step, function)
    if isinstance(function, RowMatching):
        return _row_pattern(step, function)
    if isinstance(function, Over):
        return _over(step, function)
    if isinstance(function, RegularJoin):
        return _regular_join(step, function)
    if isinstance(function, (Top, TopAtOnce)):
        return _top(step, function)
    lines = [f"  per {', '.join(step.keys)}{_order(step)}"]
    for name, state in {**function.states(), **function.broadcast_states()}.items():
        ttl = f", forgotten {describe_span(state.ttl)} after it was written" if state.ttl else ""
        lines.append(f"  {state.shape} state {name}: {state.kind.text}{ttl}")
    lines += [f"  timer {name}: {timer.time} time" for name, timer in function.timers().items()]
    return lines + [f"  side output {name}: {schema.describe()}" for name, schema in step.sides]


def _regular_join(step: steps.KeyedProcess, function: RegularJoin) -> list[str]:
    keys = f"per {', '.join(step.keys)}" if step.keys else "all rows together"
    condition = f" on {function.condition}" if function.condition else ""
    return [f"  {keys}: {function.kind} join{condition}, whose results change", f"  {function.describe_state()}"]


def _pattern(step: steps.KeyedProcess, function: PatternMatching) -> list[str]:
    form: Any = function.canonical()["settings"]
    late = "to the late output" if function.late else "dropped and counted"
    lines = [f"  per {', '.join(step.keys)}{_order(step)}: {pattern(form['pattern'])}"]
    lines.append(
        f"  after a match: {form['skip']['strategy']}; at most {function.most:,} partial matches of a key; late rows are {late}"
    )
    lines.append(f"  select {selected(form['outputs'])}")
    lines.append("  state: the rows of a key since its earliest partial match began, matched again at each start")
    return lines + [f"  side output {name}: {schema.describe()}" for name, schema in step.sides]


def _row_pattern(step: steps.KeyedProcess, function: RowMatching) -> list[str]:
    form: Any = function.canonical()["settings"]
    keys = ", ".join(step.keys) or "all rows together"
    lines = [f"  per {keys}{_order(step)}: {row_pattern(form)}"]
    lines += [f"  define {label}: {text}" for label, text in form["define"]]
    lines += [f"  measure {name}: {text}" for name, text in form["measures"]]
    lines.append(
        f"  state: the rows at which the next match may begin, at most {function.most:,} of a key, searched again at each start"
    )
    return lines + [f"  side output {name}: {schema.describe()}" for name, schema in step.sides]


def _over(step: steps.KeyedProcess, function: Over) -> list[str]:
    form: Any = function.canonical()["settings"]
    keys = ", ".join(step.keys) or "all rows together"
    late = "to the late output" if function.late else "dropped and counted"
    if isinstance(function, OverChanging):
        return [
            f"  per {keys}, in order of {order_by(form['order'])}: {over(form['measures'])}; later rows change results",
            f"  state: {function.held()}",
        ]
    return [
        f"  per {keys}{_order(step)}: {over(form['measures'])}; late rows are {late}",
        f"  state: {function.held()}",
    ]


def _top(step: steps.KeyedProcess, function: Top | TopAtOnce) -> list[str]:
    form: Any = function.canonical()["settings"]
    keys = ", ".join(step.keys) or "all rows together"
    if isinstance(function, TopAtOnce):
        return [
            f"  per {keys} and event time: {ranking(form['ranking'])}; late rows are dropped and counted",
            "  state: none",
        ]
    held = "the first rows of each key, for ever; all rows of an input whose rows may be retracted"
    return [f"  per {keys}{_order(step)}: {ranking(form['ranking'])}", f"  state: {held}"]


def _window(step: steps.WindowAggregate) -> list[str]:
    keys = ", ".join(step.keys) or "all rows together"
    late = "to the late output" if step.late == "side_output" else "dropped and counted"
    lateness = f"; rows up to {describe_span(step.allowed_lateness)} late count" if step.allowed_lateness else ""
    when = f"{window(step.window.canonical())}: {_closing(step)}{lateness}"
    lines = [f"  per {keys} and window {when}; later rows are {late}"]
    if step.trigger is not None:
        lines.append(f"  each pane {'replaces the one before' if step.revises else 'holds what is new'}")
    if step.evictor is not None:
        lines.append(f"  rows are kept; {type(step.evictor).__name__} takes some out {step.evictor.when} the function")
    return lines if step.columnar else [*lines, f"  row by row{_order(step)}"]


def _closing(step: steps.WindowAggregate) -> str:
    if step.trigger is not None:
        return f"fires {step.trigger.describe()}"
    match step.window:
        case Global():
            return "fires at the end of input"
        case Count():
            return "fires when it is full"
        case _:
            return f"fires when {'the clock' if step.time == 'processing' else 'progress'} reaches its end"
