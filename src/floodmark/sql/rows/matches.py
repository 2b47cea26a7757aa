"""``MATCH_RECOGNIZE`` of a table as the step of the fluent API."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.spec.patterns.syntax import is_row_by_row, row_pattern
from floodmark.sql.options import Options
from floodmark.sql.reading.row_pattern import CLAUSE, RowPattern
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import EVENT_TIME, Name, Relation
from floodmark.sql.text import Text
from floodmark.sql.windows import is_clock, length

_ROWTIME = re.compile(r"(?i)\bmatch_rowtime\s*\(\s*([^()\s]*)\s*\)")
_CONSTANT = re.compile(r"""((?i:r)'[^']*'|(?i:r)"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""", re.DOTALL)
"""Texts and quoted names, in which no call stands."""
_NEXT = re.compile(r"(?i)\bnext\s*\(")


def matches(text: Text, node: RowPattern, relation: Relation, alias: str, options: Options) -> Relation:
    """(the clause, the rows of its table, its alias) -> the rows of the matches.

    Raises:
        DefinitionError: DEFINITION-387, the first column of ORDER BY is not the event time; and those of ``match_recognize``.
    """
    partition = tuple(_column(text, column, relation) for column in node.args.get("partition") or ())
    within = node.args.get("within")
    define: list[tuple[str, str]] = node.args.get("define") or []
    measures: list[tuple[str, str]] = node.args.get("measures") or []
    clause: dict[str, Any] = {
        "pattern": node.args["pattern"],
        "define": dict(define),
        "measures": {name: _timed(text, node, relation, measure) for name, measure in measures},
        "order_by": _order(text, node, relation),
        "subset": dict(node.args.get("subset") or ()),
        "late": options.late,
        "on_error": options.on_error,
    }
    clause |= {"rows_per_match": node.args["rows"]} if node.args.get("rows") else {}
    clause |= {"after_match_skip": node.args["skip"]} if node.args.get("skip") else {}
    clause |= {"within": length(text, within)} if within is not None else {}
    if options.lateness not in {"0 s", ""}:
        fix = "Leave the lateness out: a match is emitted once nothing can change it; widen the bound of the source's watermark for rows that come later."
        raise unsayable(text, node, f"{CLAUSE} with lateness", fix)
    stream: Stream[Any] = relation.stream.match_recognize(partition_by=partition, **clause)
    decided = is_row_by_row(row_pattern(node.args["pattern"], text.at(node)))
    decided &= not re.search(r"(?i)\bunmatched\b", node.args.get("rows") or "")  # these rows have no match, and null
    decided &= not any(_NEXT.search(part) for _, part in (*define, *measures))
    times = {name for name, measure in measures if decided and _ROWTIME.fullmatch(measure)}
    names = (
        Name(table=alias, name=name, column=name, text=itself(name), time=name in times) for name in stream.schema.names
    )
    return Relation(stream=stream, names=tuple(names))


def _timed(text: Text, node: RowPattern, relation: Relation, measure: str) -> str:
    """A measure with the event time of the match's last row in place of ``MATCH_ROWTIME()``."""
    parts = _CONSTANT.split(measure)
    call = next(filter(None, map(_ROWTIME.search, parts[::2])), None)
    if call is None:
        return measure
    times = [name for name in relation.names if name.time and name.column]
    named = call[1].strip("`").lower()
    time = next((name for name in times if named in {"", name.name.lower()}), None)
    if time is None:
        known = ", ".join(name.name for name in times)
        fix = (
            f"Write MATCH_ROWTIME(), which is of {known}."
            if known
            else "Let the table have a column that is its event time."
        )
        raise DefinitionError(text.at(node), "the event time in MATCH_ROWTIME()", call[0], fix, code="DEFINITION-387")
    parts[::2] = [_ROWTIME.sub(f"FINAL LAST({itself(time.column)})", part) for part in parts[::2]]
    return "".join(parts)


def _order(text: Text, node: RowPattern, relation: Relation) -> tuple[str, ...]:
    """The columns of ORDER BY behind the event time."""
    order = node.args.get("order") or []
    for part in order[:1]:
        column, descending = part.this, bool(part.args.get("desc"))
        located = relation.find(text, column) if isinstance(column, exp.Column) else None
        timed = is_clock(column, located) and relation.landed
        timed |= located[0].time if located is not None else column.name.lower() == EVENT_TIME
        if not timed or descending:
            times = [known.name for known in relation.names if known.time] or [EVENT_TIME]
            fix = f"Write ORDER BY {times[0]}, and behind it what orders rows of one time."
            got = f"'{text.of(column)}'{' DESC' if descending else ''}"
            raise DefinitionError(text.at(column), "an order by the event time", got, fix, code="DEFINITION-387")
    return tuple(_by(text, part, relation) for part in order[1:])


def _by(text: Text, part: exp.Expr, relation: Relation) -> str:
    """A column of ORDER BY as the fluent form has it."""
    direction = " DESC" if part.args.get("desc") else ""
    nulls = "" if part.args.get("nulls_first") is None else f" NULLS {'FIRST' if part.args['nulls_first'] else 'LAST'}"
    return f"{_column(text, part.this, relation)}{direction}{nulls}"


def _column(text: Text, node: exp.Expr, relation: Relation) -> str:
    located = relation.find(text, node) if isinstance(node, exp.Column) else None
    if located is None or not located[0].column or located[1].name != node.name:
        fix = relation.stream.schema.nearest(text.of(node))
        raise DefinitionError(text.at(node), "a column of the table", text.of(node), fix, code="DEFINITION-388")
    return located[0].column
