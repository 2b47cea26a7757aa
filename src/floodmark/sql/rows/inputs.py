"""Which columns of an input hold its event time."""

from __future__ import annotations

from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Binding, Input, Operator, OutputRef
from floodmark.spec.graph.stream import Stream
from floodmark.spec.keyed.matching import Deduplicate
from floodmark.spec.keyed.over import Over, OverChanging
from floodmark.spec.rows.contract import Contract, event_time_field
from floodmark.spec.rows.source import Source
from floodmark.spec.windowing.windows import bounded_in_time
from floodmark.sql.relation import BOUNDS, WINDOW_TIME, Name, Relation

Contracts = type[Contract]
Bound = Binding | Contracts
"""What a table of a statement is: a source, a contract of the source of the table's name, an operator or one of its outputs."""


def relation_of(read: Input, bound: Bound, stream: Stream) -> Relation:
    """The rows of an input with the names of its columns, and ``window_time`` for the results of a window."""
    times, windowed = _times(bound)
    contract = bound.contract if isinstance(bound, Source) else bound
    landed = isinstance(contract, type) and contract.floodmark_ingestion_time
    names = [
        Name(table=read.name, name=name, text=itself(name), column=name, time=name in times)
        for name in read.schema.names
    ]
    if windowed and BOUNDS[1] in read.schema and BOUNDS[2] not in read.schema:
        names.append(Name(table=read.name, name=BOUNDS[2], text=WINDOW_TIME, time=True))
    return Relation(stream=stream, names=tuple(names), landed=landed)


def _times(bound: Bound) -> tuple[set[str], bool]:
    """(columns that hold the event time, whether the rows are results of windows)."""
    match bound:
        case Source():
            return _of_contract(bound.contract), False
        case Operator():
            return _of_result(bound, bound.results[0][1])
        case OutputRef():
            results = dict(bound.operator.results)
            return _of_result(bound.operator, results[bound.name]) if bound.name in results else (set(), False)
        case type():
            return _of_contract(bound), False
        case _:
            return set(), False


def _of_contract(contract: Contracts) -> set[str]:
    name = event_time_field(contract)
    return {name} if name else set()


def _of_result(operator: Operator, step: steps.Step) -> tuple[set[str], bool]:
    match step:
        case steps.Read():
            source = next(read for read in operator.inputs if read.name == step.input)
            if source.upstream is not None:
                return _times(source.upstream)
            return {
                c.name
                for c in source.schema.columns
                if c.type == "timestamp" and not c.nullable and _only(source, c.name)
            }, False
        case steps.Filter() | steps.Expect():
            return _of_result(operator, step.parent)
        case steps.Project():
            times, windowed = _of_result(operator, step.parent)
            columns = dict(step.columns)
            plain = {name for name, text in columns.items() if any(text == itself(time) for time in times)}
            computed = {name for name, text in columns.items() if text == WINDOW_TIME and windowed}
            return plain | computed, windowed and columns.get(BOUNDS[1]) == BOUNDS[1]
        case steps.Union():
            parts = [_of_result(operator, parent) for parent in step.parents]
            return set.intersection(*(times for times, _ in parts)), all(windowed for _, windowed in parts)
        case steps.WindowAggregate():
            return set(), bounded_in_time(step.window) and step.function is None
        case steps.KeyedProcess() if isinstance(step.function.function, OverChanging):
            return set(), False
        case steps.KeyedProcess() if isinstance(step.function.function, (Deduplicate, Over)):
            return _of_result(operator, step.parent)
        case _:
            return set(), False


def _only(source: Input, name: str) -> bool:
    """Whether a column is the one timestamp of a source that is never null, which then is its event time."""
    times = [c.name for c in source.schema.columns if c.type == "timestamp" and not c.nullable]
    return times == [name]
