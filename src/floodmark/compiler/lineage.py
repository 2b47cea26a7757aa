"""Column lineage: from which columns of its inputs each column of an operator's outputs is computed. Read off the graph; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from floodmark.spec.expressions.expression import expression
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.keyed.matching import Deduplicate, TemporalJoin, WindowJoin
from floodmark.spec.keyed.over import Over
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.keyed.top import Top, TopAtOnce, Unique
from floodmark.spec.values.schema import TAG
from floodmark.spec.windowing.aggregates import texts
from floodmark.spec.windowing.frames import texts as texts_of

Origins = frozenset[tuple[str, str]]
"""(table, column) for each column of an input."""
Columns = Mapping[str, Origins]
_BOUNDS = ("window_start", "window_end")


def lineage(operator: Operator, event_times: Mapping[str, str]) -> dict[str, Columns]:
    """(operator) -> per table of its outputs and column of it, the columns of its inputs that the values are computed from.

    A column depends on what its expression or aggregate names, the keys of a group on themselves, and the bounds of a window on event time. A Python
    function may read all that it reads, so each of its columns depends on all of it. Conditions that decide which rows there are do not count.

    Args:
        operator: the operator.
        event_times: table of an input -> its column of event time, where it has one.
    """
    return {output.table: _of(operator, output, event_times) for output in operator.outputs if output.side is None}


def _of(operator: Operator, output: Output, event_times: Mapping[str, str]) -> Columns:
    return _Walk(operator, event_times).columns(dict(operator.results)[output.name])


class _Walk:
    """One walk over the graph of an operator."""

    def __init__(self, operator: Operator, event_times: Mapping[str, str]) -> None:
        self.where = f"operator '{operator.name}'"
        self.tables = {operator_input.name: operator_input.table for operator_input in operator.inputs}
        self.event_times = event_times

    def columns(self, step: steps.Step) -> Columns:
        """Column of a step's result -> where its values come from."""
        match step:
            case steps.Read():
                table = self.tables[step.input]
                return {name: frozenset({(table, name)}) for name in step.schema.names}
            case steps.Union():
                parts = [self.columns(parent) for parent in step.parents]
                return {name: _all(part[name] for part in parts) for name in step.schema.names}
            case steps.Project():
                before = self.columns(step.parent)
                return {name: self._expression(text, step.parent, before) for name, text in step.columns}
            case steps.Call() if step.cache:
                before = self.columns(step.parent)
                return dict(before) | dict.fromkeys(step.answered.names, _all(before[name] for name in step.cache))
            case steps.FlatMap():
                return dict.fromkeys(step.schema.names, _all(self.columns(step.parent).values()))
            case steps.Filter() | steps.Expect():
                return self.columns(step.parent)
            case steps.WindowAggregate() if not isinstance(_call(step), WindowJoin):
                return self._windowed(step)
            case steps.KeyedProcess():
                return self._processed(step, step.function.function)
            case _:
                return self._keyed(step)

    def _processed(self, step: steps.KeyedProcess, function: object) -> Columns:
        """Functions of floodmark's own hand on the columns of their rows; what they add depends on what they read."""
        before = self.columns(step.parent)
        match function:
            case Deduplicate():
                return before
            case Over():
                own = {
                    m.name: _all(before[function.columns[text]] for text in texts_of(m.of)) for m in function.measures
                }
            case Top() | TopAtOnce():
                read = [*step.keys, *(by.column for by in function.ranking.by)]
                own = {function.ranking.number: _all(before[name] for name in read)}
            case Unique():
                own = {}
            case _:
                return self._keyed(step)
        return {name: own[name] if name in own else before[name] for name in step.schema.names}

    def _expression(self, text: str, over: steps.Step, before: Columns) -> Origins:
        return _all(before[name] for name in expression(text, over.schema, self.where).columns)

    def _windowed(self, step: steps.WindowAggregate) -> Columns:
        """Keys are themselves; aggregates depend on what they name; a function's columns on all that it is given."""
        before = self.columns(step.parent)
        aggregated = {
            name: _all(self._expression(text, step.parent, before) for text in texts(aggregate))
            for name, aggregate in step.aggregates
        }
        everything = _all((aggregated if step.aggregates else before).values())
        own = aggregated if step.function is None else dict.fromkeys(step.own_columns, everything)
        return {name: self._whole(name, step, before, own) for name in step.schema.names}

    def _whole(self, name: str, step: steps.Stateful, before: Columns, own: Columns) -> Origins:
        """Where a column of a stateful step comes from: a key, a bound of its window, or ``own``."""
        if name in step.keys:
            return before[name]
        if isinstance(step, steps.WindowAggregate) and name in _BOUNDS:
            return self._event_time(step)
        return own[name]

    def _event_time(self, step: steps.Step) -> Origins:
        read = {self.tables[part.input] for part in steps.walk(step) if isinstance(part, steps.Read)}
        return frozenset((table, self.event_times[table]) for table in read if table in self.event_times)

    def _keyed(self, step: steps.Stateful) -> Columns:
        """Joins have the columns of both sides beside the keys; a process function's columns depend on all that it is given."""
        before = self.columns(step.parent)
        own_names = [
            n
            for n in (step.own_columns if isinstance(step, steps.WindowAggregate) else step.schema.names)
            if n not in step.keys
        ]
        if isinstance(step, steps.IntervalJoin) or isinstance(_call(step), (WindowJoin, TemporalJoin, RegularJoin)):
            sides = [place for _, place in sorted(_places(step))]
            # a semi or anti join has the columns of the left alone
            own = {name: before[place] for name, place in zip(own_names, sides, strict=False)}
        else:
            own = dict.fromkeys(own_names, _all(before[name] for name in before if name != TAG))
        return {name: self._whole(name, step, before, own) for name in step.schema.names}


def _places(step: steps.Stateful) -> Iterable[tuple[tuple[int, int], str]]:
    """((side, position), column of the tagged union) for all columns of both sides but the keys. Versions come first among the ports, and last in the result."""
    call = _call(step)
    ports = sorted(call.ports if isinstance(call, WindowJoin) else step.ports, key=lambda port: port.name == "version")
    for side, port in enumerate(ports):
        names = [place for _, place in port.columns if place not in step.keys]
        yield from (((side, position), place) for position, place in enumerate(names))


def _call(step: steps.Stateful) -> object:
    match step:
        case steps.WindowAggregate():
            return step.function and step.function.call
        case steps.KeyedProcess():
            return step.function.function
        case _:
            return None


def _all(origins: Iterable[Origins]) -> Origins:
    return frozenset().union(*origins)
