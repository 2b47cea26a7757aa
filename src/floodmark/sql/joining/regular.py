"""Regular joins of a statement that ends with EMIT CHANGES: rows of any time, whose pairs change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from floodmark.spec.expressions import known_type
from floodmark.spec.expressions.widening import common
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.sql.joining.joins import Joiner, prefix_of
from floodmark.sql.joining.subqueries import other_columns
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.refusals import check_expression
from floodmark.sql.relation import Name, Relation
from floodmark.sql.text import new_name

_AS_TEXT = frozenset({"tinyint", "smallint", "int", "bigint", "string", "boolean", "date", "timestamp"})
"""Types whose equal values have one text, by which rows are divided where nulls are equal."""


@dataclass(slots=True)
class _Divided:
    """The conditions of a join by where they are computed: over a side before the join, over pairs in the join, over its result."""

    before: dict[str, list[exp.Expr]] = field(default_factory=lambda: {"left": [], "right": []})
    within: list[exp.Expr] = field(default_factory=list)
    behind: list[exp.Expr] = field(default_factory=list)


class RegularJoiner(Joiner):
    """A join of all rows; arguments as of ``Joiner``. Any equality of a left and a right expression is a key, any other condition a further one.

    Args:
        positional: as of ``Joiner``.
        compared: values that IN compares with columns of the right: without NOT equalities, with NOT some that a null on either side meets.
        columns: these, as expressions over the right; by default its columns.
    """

    def __init__(self, *positional: Any, compared: Sequence[exp.Expr] = (), columns: Sequence[exp.Expr] = ()) -> None:
        self.computed: list[tuple[exp.Expr, exp.Expr]] = []
        self.null_safe: list[tuple[exp.Expr, exp.Expr]] = []
        """Sides that are equal where both are null too."""
        self.unequal: list[tuple[exp.Expr, exp.Expr]] = []
        super().__init__(*positional)
        if compared:
            for value, column in zip(compared, columns or self._columns(len(compared)), strict=True):
                self._compare(value, column)

    def _columns(self, values: int) -> list[exp.Column]:
        columns = self.right.names
        if len(columns) != values:
            raise other_columns(self.text, self.node.this, len(columns), values)
        return [exp.column(column.name, table=column.table) for column in columns]

    def _compare(self, value: exp.Expr, column: exp.Expr) -> None:
        check_expression(self.text, value)
        check_expression(self.text, column)
        sides = (value, self.left), (column, self.right)
        if self.kind == "anti" and any(self._may_be_null(node, side) for node, side in sides):
            self.unequal.append((self._of_left(value), column))
        else:
            self.computed.append((value, column))

    def _of_left(self, value: exp.Expr) -> exp.Expr:
        """The value with the tables of its columns, as a column of the right may have the name of one of them."""
        value = value.copy()
        for column in value.find_all(exp.Column):
            located = None if column.table else self.left.find(self.text, column)
            if located is not None and located[0].table:
                column.set("table", exp.to_identifier(located[0].table, quoted=True))
        return value

    def _may_be_null(self, node: exp.Expr, side: Relation) -> bool:
        located = side.find(self.text, node) if isinstance(node, exp.Column) else None
        return located is None or not located[0].column or side.stream.schema[located[0].column].nullable

    def _is_time(self, node: exp.Expr, known: Any) -> bool:  # noqa: ARG002 - times are further conditions
        return False

    def _is_key(self, node: exp.Expr, known: Any) -> bool:
        if not isinstance(node, (exp.EQ, exp.NullSafeEQ)):
            return False
        parts = {self._only(part): part for part in (node.left, node.right)}
        if set(parts) != {"left", "right"} or any(map(is_aggregate, node.walk())):
            return False
        if isinstance(node, exp.NullSafeEQ):
            self.null_safe.append((parts["left"], parts["right"]))
            return False  # the key divides the rows, and the condition decides
        left, right = (self._column(parts[side]) for side in ("left", "right"))
        if left is not None and right is not None and left.column and right.column:
            kinds = self.left.stream.schema[left.column].type, self.right.stream.schema[right.column].type
            if kinds[0] == kinds[1] and super()._is_key(node, known):
                return True
        self.computed.append((parts["left"], parts["right"]))
        return True

    def _column(self, node: exp.Expr) -> Name | None:
        """The column that an expression is; None for another expression, and for a part of a struct."""
        if not isinstance(node, exp.Column):
            return None
        located = self.both.find(self.text, node)
        return located[0] if located is not None and located[1] is node.parts[-1] else None

    def _only(self, node: exp.Expr) -> str:
        """``left`` or ``right`` for an expression over columns of one side; empty for any other."""
        sides = {self._side(column)[0] for column in node.find_all(exp.Column)}
        side = sides.pop() if len(sides) == 1 else None
        return side or ""

    def joined(self, options: Options) -> tuple[Relation, list[exp.Expr]]:
        """(settings) -> the rows of the join, and the conditions that are left for a filter behind it."""
        text, parts = self.text, self._divided()
        relations = [self._filtered(self.left, parts.before["left"], options)]
        relations.append(self._filtered(self.right, parts.before["right"], options))
        keys = [[name.column for name, _ in self.conditions.keys], [name.column for _, name in self.conditions.keys]]
        for pair in (*self.computed, *self.null_safe):
            relations = self._with_key(relations, pair, keys)
        used = [*parts.within, *parts.behind, *(side for pair in self.unequal for side in pair)]
        lacking = self.kind in {"right", "full"}, self.kind in {"left", "full"}
        left, right = (
            self._side_of(
                relation, [Name(table="", name=key, text="", column=key) for key in own], used, missing=missing
            )
            for relation, own, missing in zip(relations, keys, lacking, strict=True)
        )
        prefix = prefix_of(left, right)
        keyed, other = KeyedStream(left.stream, left.keys), KeyedStream(right.stream, right.keys)
        settings: dict[str, Any] = {"prefix": prefix, "ttl": options.within or None}
        kind: Any = self.kind
        condition = ""
        if parts.within or self.unequal:
            pairs = keyed.regular_join(other, **settings)
            over = Relation(stream=pairs, names=tuple(self._names(left, right, pairs, prefix, semi=False)))
            condition = " AND ".join([f"({over.scalar(text, part)})" for part in parts.within] + self._unequal(over))
        stream: Stream[Any] = keyed.regular_join(other, kind=kind, on=condition, **settings)
        semi = self.kind in {"semi", "anti"}
        return Relation(stream=stream, names=tuple(self._names(left, right, stream, prefix, semi=semi))), parts.behind

    def _unequal(self, pairs: Relation) -> list[str]:
        """The conditions of NOT IN, that a pair is equal or nobody knows, as text over the pairs."""
        sides = ([self._rendered(pairs, node) for node in pair] for pair in self.unequal)
        return [f"({value} = {column} OR {value} IS NULL OR {column} IS NULL)" for value, column in sides]

    def _wanted(self, side: Relation, behind: list[exp.Expr]) -> set[str]:
        """As of ``Joiner``; behind a semi- or anti-join the left's columns alone have names."""
        if self.kind not in {"semi", "anti"}:
            return super()._wanted(side, behind)
        wanted = self._read_of(self.both, side, behind)
        if side.tables != self.right.tables:
            stars = [star for part in self.read for star in part.find_all(exp.Star)]
            if any(not isinstance(star.parent, exp.Count) for star in stars):
                return {name.column for name in side.names if name.column}
            wanted |= self._read_of(self.left, side, self.read)
        return wanted

    def _read_of(self, scope: Relation, side: Relation, parts: Iterable[exp.Expr]) -> set[str]:
        """The columns of a side that parts of the statement read, whose names are those of a scope."""
        columns = [column for part in parts for column in part.find_all(exp.Column)]
        located = [
            scope.find(self.text, column)
            for column in columns
            if not self._joins_later(column) and not isinstance(column.this, exp.Star)
        ]
        return {name[0].column for name in located if name is not None and name[0].column and name[0] in side.names}

    def _divided(self) -> _Divided:
        """What is over one side and decides for that side alone is computed before the join, where it keeps rows out of the state."""
        parts, kind = _Divided(), self.kind
        optional = {
            "inner": {"left", "right"},
            "left": {"right"},
            "right": {"left"},
            "semi": {"left", "right"},
            "anti": {"right"},
        }
        for condition in self.conditions.other:
            side = self._only(condition)
            if side in optional.get(kind, ()):
                parts.before[side].append(condition)
            else:
                (parts.behind if kind == "inner" else parts.within).append(condition)
        preserved = {"left": "left", "right": "right", "semi": "left", "anti": "left"}
        for condition in self.where:
            side = self._only(condition)
            pushed = side and side == preserved.get(kind) and not condition.find(exp.Window)
            (parts.before[side] if pushed else parts.behind).append(condition)
        return parts

    def _filtered(self, relation: Relation, conditions: Iterable[exp.Expr], options: Options) -> Relation:
        stream = relation.stream
        for condition in conditions:
            stream = stream.filter(relation.scalar(self.text, condition), on_error=options.on_error)
        return replace(relation, stream=stream)

    def _rendered(self, relation: Relation, node: exp.Expr) -> str:
        """The text of an expression over a side; the column of IN (SELECT ...) has no text of its own."""
        own = isinstance(node, exp.Column) and not any("start" in part.meta for part in node.parts)
        located = relation.find(self.text, node) if isinstance(node, exp.Column) and own else None
        return located[0].text if located is not None else relation.scalar(self.text, node)

    def _with_key(
        self, relations: list[Relation], pair: tuple[exp.Expr, exp.Expr], keys: list[list[str]]
    ) -> list[Relation]:
        """Both sides with a column for the two sides of an equality, of the type that both are compared in."""
        texts = [self._rendered(relation, node) for relation, node in zip(relations, pair, strict=True)]
        kinds = [
            known_type(text, r.stream.schema, self.text.at(n))
            for text, r, n in zip(texts, relations, pair, strict=True)
        ]
        kind = common(*kinds) or ""
        if pair in self.null_safe and kind not in _AS_TEXT:
            return relations
        name = new_name("join_key", [*(column for r in relations for column in r.stream.schema.names)])
        made = []
        for relation, own_kind, rendered, own_keys in zip(relations, kinds, texts, keys, strict=True):
            value = rendered if own_kind == kind or not kind else f"CAST({rendered} AS {kind})"
            if pair in self.null_safe:
                value = f"coalesce(CAST({value} AS string), '')"
            column: dict[str, Any] = {name: value}
            made.append(replace(relation, stream=relation.stream.with_columns(**column)))
            own_keys.append(name)
        return made
