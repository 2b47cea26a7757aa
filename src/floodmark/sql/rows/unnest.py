"""Rows of a row: CROSS JOIN UNNEST, LATERAL VIEW explode, and the rows of windows that are not aggregated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.types import parse
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph.stream import Stream
from floodmark.spec.graph.unnesting import repeated
from floodmark.spec.keyed.applied import signature_of
from floodmark.spec.windowing.windows import Cumulative, Sliding
from floodmark.sql.functions import argument_of
from floodmark.sql.options import Options
from floodmark.sql.refusals import INLINE_OUTER, MAKES_ROWS, unsayable
from floodmark.sql.relation import BOUNDS, Name, Relation, Windowed
from floodmark.sql.text import Text, new_name
from floodmark.sql.windows import function_name, row_bounds

_LONGEST = (1 << 31) - 1


def generators(node: exp.Select) -> tuple[list[exp.Expr], list[exp.Join]]:
    """(SELECT) -> its joins that make several rows of one, and its other joins."""
    source = node.args["from_"].this
    joins = [*(node.args.get("joins") or ()), *(source.args.get("joins") or ())]
    own = [join for join in joins if _generator(join) is not None]
    return [*own, *(node.args.get("laterals") or ())], [join for join in joins if _generator(join) is None]


def _generator(join: exp.Expr) -> exp.Expr | None:
    """The UNNEST of a join."""
    inner = join.this
    if isinstance(inner, exp.Lateral):
        inner = inner.this
    called = function_name(inner) == "TABLE" and len(inner.expressions) == 1
    return inner if called or isinstance(inner, MAKES_ROWS) else None


def unnested(text: Text, node: exp.Expr, relation: Relation, options: Options) -> Relation:
    """The rows of a relation, each once for each element of an UNNEST or of a LATERAL VIEW."""
    view = isinstance(node, exp.Lateral)
    generator = node.this if view else _generator(node)
    outer = isinstance(generator, (exp.ExplodeOuter, exp.PosexplodeOuter))
    if isinstance(generator, exp.Anonymous) and function_name(generator) == INLINE_OUTER:
        outer, generator = True, exp.Inline(this=generator.expressions[0] if len(generator.expressions) == 1 else None)
    if isinstance(generator, exp.Anonymous):
        return _of_function(text, node, generator.expressions[0], relation, options)
    if isinstance(generator, exp.Explode):
        expression: exp.Expr | None = generator.this
    elif isinstance(generator, (exp.Posexplode, exp.Inline)):
        expression = generator.this
    else:
        parts = generator.expressions if isinstance(generator, exp.Unnest) else []
        expression = parts[0] if len(parts) == 1 else None
    if expression is None or (not view and not _plain(node)):
        fix = "Write CROSS JOIN UNNEST(words) AS w(word), or LATERAL VIEW explode(words) w AS word."
        raise unsayable(text, node, "several rows of one", fix)
    alias = (generator if isinstance(generator, exp.Unnest) else node if view else node.this).args.get("alias")
    rendered = relation.scalar(text, expression)
    kind = parse(known_type(rendered, relation.stream.schema, text.at(expression)))
    written = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    position = _position(generator, written)
    if position and position in written:
        written.remove(position)
    written = written or _default(kind)
    stream = relation.stream
    taken = [*stream.schema.names, *BOUNDS]
    names: list[str] = []
    for name in written:
        names.append(new_name(name, [*taken, *names]))
    ordinal = new_name(position, [*taken, *names]) if position else ""
    outer |= bool(node.args.get("outer")) or str(node.args.get("side") or "").upper() == "LEFT"
    stream = stream.unnest(rendered, *names, position=ordinal, outer=outer, on_error=options.on_error)
    if ordinal and isinstance(generator, exp.Posexplode):  # counts from 0, WITH ORDINALITY from 1
        before: dict[str, Any] = {ordinal: f"{itself(ordinal)} - 1"}
        stream = stream.with_columns(**before)
    table = alias.this.name if alias is not None and alias.this is not None else ""
    shown = [*zip(written, names, strict=True), *([(position, ordinal)] if position else [])]
    new = [Name(table=table, name=name, text=itself(column), column=column) for name, column in shown]
    return replace(relation, stream=stream, names=(*relation.names, *new))


def _of_function(text: Text, node: exp.Expr, call: exp.Expr, relation: Relation, options: Options) -> Relation:
    """The rows of a relation, each once for each row that a table function of the user yields for it."""
    function: Any = options.functions.get(function_name(call).lower())
    signature = signature_of(function)
    if signature is None or not signature.columns or not _plain(node):
        known = ", ".join(name for name, own in options.functions.items() if getattr(signature_of(own), "columns", ()))
        fix = f"Table functions: {known or 'none'}. Mark one with @fm.function(schema=...), and give it as functions=[...]."
        raise unsayable(text, node, "rows of a function that is not known", fix)
    alias = node.this.args.get("alias")
    written = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    written = written or [column.name for column in signature.columns]
    taken = [*relation.stream.schema.names, *BOUNDS]
    names = [new_name(name, taken) for name in written]
    arguments = [argument_of(text, argument, relation) for argument in call.expressions]
    outer = str(node.args.get("side") or "").upper() == "LEFT"
    stream = relation.stream.apply(function, *arguments, names=names, outer=outer, on_error=options.on_error)
    table = alias.this.name if alias is not None and alias.this is not None else ""
    pairs = zip(written, names, strict=True)
    new = [Name(table=table, name=name, text=itself(column), column=column) for name, column in pairs]
    return replace(relation, stream=stream, names=(*relation.names, *new))


def _plain(join: exp.Expr) -> bool:
    """Whether a join is CROSS JOIN, a comma, or LEFT JOIN ... ON TRUE."""
    on = join.args.get("on")
    return on is None or (isinstance(on, exp.Boolean) and bool(on.this))


def _position(generator: exp.Expr | None, written: list[str]) -> str:
    """The column of the position of WITH ORDINALITY or of posexplode."""
    if isinstance(generator, exp.Posexplode):
        return written[0] if written else "pos"
    offset = generator.args.get("offset") if generator is not None else None
    return offset.name if isinstance(offset, exp.Identifier) else ("offset" if offset else "")


def _default(kind: Any) -> list[str]:
    if kind.name == "map":
        return ["key", "value"]
    element = kind.inner[0] if kind.inner else kind
    return list(element.names) if element.name == "struct" else ["col"]


# ---- rows of windows


def in_windows(windowed: Windowed, relation: Relation, options: Options) -> Relation | None:
    """The rows of a relation, each once for each of its windows, with columns of their bounds; None for windows that a row alone does not decide."""
    bounds = row_bounds(windowed, relation)
    if bounds:
        return replace(relation, stream=relation.stream.with_columns(**bounds))
    time = next((name.column for name in relation.names if name.time and name.text and name.column), "")
    window = windowed.window
    if windowed.clocked or not time or not isinstance(window, (Sliding, Cumulative)) or window.size > _LONGEST:
        return None
    return replace(relation, stream=_placed(relation.stream, window, time, options))


def _placed(stream: Stream[Any], window: Sliding | Cumulative, time: str, options: Options) -> Stream[Any]:
    """The stream with the bounds of its windows."""
    sliding = isinstance(window, Sliding)
    step = window.slide if isinstance(window, Sliding) else window.step
    number = new_name("window_number", stream.schema.names)
    stream = repeated(stream, number, -(-window.size // step))
    behind = f"pmod(unix_millis({itself(time)}) - ({window.offset}), {step if sliding else window.size})"
    if sliding:
        start, end = (f"{part} - {behind} - {number} * {step}" for part in (0, window.size))
        stream = stream.filter(f"{behind} + {number} * {step} < {window.size}")
    else:
        start, end = f"0 - {behind}", f"({number} + 1) * {step} - {behind}"
        stream = stream.filter(f"{behind} < ({number} + 1) * {step}")
    moment = f"date_trunc('MILLISECOND', {itself(time)})"
    shifts = {BOUNDS[0]: start, BOUNDS[1]: end, BOUNDS[2]: f"{end} - 1"}
    bounds: dict[str, Any] = {
        name: f"timestampadd(MILLISECOND, CAST({shift} AS int), {moment})" for name, shift in shifts.items()
    }
    return stream.with_columns(on_error=options.on_error, **bounds)
