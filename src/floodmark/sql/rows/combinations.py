"""Set operations: the rows of UNION, INTERSECT and EXCEPT of several SELECTs.

INTERSECT and EXCEPT count how often the left and the right have each row; the counts change with every row, and the result with them. Nulls are
equal, as in GROUP BY. Source: SQL:2016 7.17, as in Flink's ``StreamPhysicalGroupAggregate`` over both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.expressions.widening import common
from floodmark.spec.graph.stream import Stream
from floodmark.spec.windowing.aggregates import sum as sum_of
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import Relation
from floodmark.sql.text import Text, new_name

_WAYS_ON: Mapping[type[exp.Expr], str] = {
    exp.Union: "Write UNION ALL",
    exp.Intersect: "Write a semi-join: SELECT ... FROM a LEFT SEMI JOIN b ON a.k = b.k AND b.ts BETWEEN ...",
    exp.Except: "Write an anti-join: SELECT ... FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.ts BETWEEN ...",
}


def branches(node: exp.Expr) -> list[exp.Expr]:
    """The SELECTs of a set operation, left to right: all those of a chain of UNION ALL, else two."""
    assert isinstance(node, exp.SetOperation)
    if not is_chain(node):
        return [node.this, node.expression]
    parts, unread = list[exp.Expr](), [node.expression, node.this]
    while unread:
        part = unread.pop()
        if is_chain(part) and "emit" not in part.meta:
            unread += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def is_chain(node: exp.Expr) -> bool:
    """Whether a node is a UNION ALL, which may be one of a chain."""
    return isinstance(node, exp.Union) and not node.args.get("distinct") and not node.args.get("with_")


def combined(text: Text, node: exp.SetOperation, parts: Sequence[Relation], *, changing: bool) -> Relation:
    """The rows of a set operation.

    Args:
        text: of the statement.
        node: the operation.
        parts: its SELECTs, as of ``branches``.
        changing: whether the result may change.

    Raises:
        DefinitionError: DEFINITION-382, results that change where they must not; DEFINITION-393, SELECTs with different numbers of columns.
    """
    unique = bool(node.args.get("distinct"))
    if not changing and (unique or not isinstance(node, exp.Union)):
        ways_on = next(fix for kind, fix in _WAYS_ON.items() if isinstance(node, kind))
        what = "UNION, which drops duplicates" if isinstance(node, exp.Union) else node.key.upper()
        fix = f"{ways_on}; or say that state grows with the different rows, at the end: EMIT CHANGES."
        raise unsayable(text, node.expression, what, fix)
    first, *others = parts
    names = first.stream.schema.names
    if node.args.get("by_name"):
        others = [_in_order(text, node, part, names) for part in others]
    streams = [_renamed(text, node, part.stream, names) for part in others]
    left, *streams = _of_one_type([first.stream, *streams])
    first = replace(first, stream=left)
    times = set.intersection(*({name.name for name in part.names if name.time} for part in parts))
    columns = tuple(replace(name, time=name.name in times) for name in first.names)
    together = first.stream.union(*streams)  # which says where types differ
    if isinstance(node, exp.Union):
        return Relation(stream=together.distinct() if unique else together, names=columns)
    return Relation(stream=_counted(node, first.stream, streams[0], unique=unique), names=columns)


def _of_one_type(streams: list[Stream[Any]]) -> list[Stream[Any]]:
    """The streams, their columns of the type that Spark compares and unites them in; where there is none, as they are."""
    names = streams[0].schema.names
    if any(stream.schema.names != names for stream in streams):
        return streams
    kinds: dict[str, str] = {}
    for name in names:
        own = [stream.schema[name].type for stream in streams]
        if "string" in own:  # a text is no number, though Spark would read it as one
            kinds[name] = ""
            continue
        kinds[name] = reduce(lambda left, right: left and right and (common(left, right) or ""), own)
    made = []
    for stream in streams:
        columns: dict[str, Any] = {
            name: itself(name)
            if kinds[name] in {"", stream.schema[name].type}
            else f"CAST({itself(name)} AS {kinds[name]})"
            for name in names
        }
        same = all(text == itself(name) for name, text in columns.items())
        made.append(stream if same else stream.select(**columns))
    return made


def _in_order(text: Text, node: exp.SetOperation, part: Relation, names: Sequence[str]) -> Relation:
    """A SELECT of UNION ALL BY NAME with its columns in the order of the first one's."""
    own = part.stream.schema.names
    if sorted(own) != sorted(names):
        got = f"{', '.join(names)}; {', '.join(own)}"
        fix = "Select the same names in each; CAST(NULL AS STRING) AS note stands for one that a table lacks."
        where = text.at(node.expression)
        raise DefinitionError(where, "SELECTs with columns of the same names", got, fix, code="DEFINITION-393")
    return part if own == tuple(names) else replace(part, stream=part.stream.select(*names))


def _renamed(text: Text, node: exp.SetOperation, stream: Stream[Any], names: Sequence[str]) -> Stream[Any]:
    """A stream whose columns have the names of those of the first SELECT at the same places."""
    own = stream.schema.names
    if len(own) != len(names):
        got = f"{len(names)} and {len(own)}: {', '.join(names)}; {', '.join(own)}"
        fix = "Select as many in each; NULL stands for one that a table lacks: CAST(NULL AS STRING) AS note."
        where = text.at(node.expression)
        raise DefinitionError(where, "SELECTs with as many columns each", got, fix, code="DEFINITION-393")
    if own == names:
        return stream
    columns: dict[str, Any] = {new: itself(old) for new, old in zip(names, own, strict=True)}
    return stream.select(**columns)


def _counted(node: exp.SetOperation, left: Stream[Any], right: Stream[Any], *, unique: bool) -> Stream[Any]:
    """The rows by how often both sides have them."""
    names = list(left.schema.names)
    lefts = new_name("of_left", names)
    rights = new_name("of_right", [*names, lefts])
    sides: list[dict[str, Any]] = [{lefts: "1L", rights: "0L"}, {lefts: "0L", rights: "1L"}]
    marked = [stream.with_columns(**side) for stream, side in zip((left, right), sides, strict=True)]
    sums: dict[str, Any] = {lefts: sum_of(lefts), rights: sum_of(rights)}
    counts = marked[0].union(marked[1]).key_by(*names).rolling(**sums)
    both = isinstance(node, exp.Intersect)
    if unique:
        return counts.filter(f"`{lefts}` > 0 AND `{rights}` {'>' if both else '='} 0").select(*names)
    copies = new_name("copies", [*names, lefts, rights])
    number = f"least(`{lefts}`, `{rights}`)" if both else f"`{lefts}` - `{rights}`"
    times: dict[str, Any] = {copies: number}
    several = counts.with_columns(**times).filter(f"`{copies}` > 0")
    return several.unnest(f"sequence(1, CAST(`{copies}` AS INT))", new_name("copy", [*names, copies])).select(*names)
