"""Joins of a statement as those of the fluent API: by an interval, by windows, by versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.spec.windowing.windows import Window
from floodmark.sql.options import Options
from floodmark.sql.refusals import check_expression, unsayable
from floodmark.sql.relation import BOUNDS, WINDOW_TIME, Name, Relation
from floodmark.sql.text import Text, new_name
from floodmark.sql.windows import again, bounds_again, duration, length, rows_of

_KINDS = {
    "": "inner",
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "SEMI": "semi",
    "ANTI": "anti",
}
_MILLISECOND = timedelta(milliseconds=1)
_BOUNDED = (
    "Say how far apart in event time the rows may be: ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts; or join two windows "
    "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end; or the version that was valid: "
    "JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k. Or end the statement with EMIT CHANGES: rows of any time are joined, results change, and "
    "every row of both tables stays in the state, or those of the setting within."
)


@dataclass(slots=True)
class _Conditions:
    """The conditions of a join, by what they say."""

    keys: list[tuple[Name, Name]] = field(default_factory=list)
    lower: timedelta | None = None
    upper: timedelta | None = None
    window: set[str] = field(default_factory=set)
    wider: list[exp.Expr] = field(default_factory=list)
    """Of times from which that of the row may lie away, so that the join's interval is wider than they say."""
    other: list[exp.Expr] = field(default_factory=list)


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions that AND joins."""
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    elif isinstance(node, exp.Paren) and isinstance(node.this, exp.And):
        yield from conjuncts(node.this)
    elif node is not None:
        yield node


def kind_of(text: Text, node: exp.Expr, at: exp.Expr) -> str:
    """(join, its table) -> ``inner``, ``left``, ``right``, ``full``, ``semi`` or ``anti``."""
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    method = node.args.get("method") or ""
    if method.upper() == "ASOF":
        fix = "Write the version that was valid: LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k, where ts is the event time of a."
        raise unsayable(text, at, "ASOF JOIN", fix)
    if method or (kind == "CROSS" and node.args.get("on")):
        raise unsayable(text, at, f"{method or kind} JOIN", "Write JOIN ... ON ... with its columns.")
    word = kind if kind in {"SEMI", "ANTI"} else side or ("" if kind in {"CROSS", "OUTER"} else kind)
    if word not in _KINDS:
        raise unsayable(text, at, f"{word} JOIN", "Write JOIN, LEFT, RIGHT, FULL, LEFT SEMI or LEFT ANTI JOIN.")
    return _KINDS[word]


def natural(text: Text, join: exp.Join, left: Relation, right: Relation) -> exp.Join:
    """NATURAL JOIN as a join by USING of the columns that both tables have; any other join as it is.

    Raises:
        DefinitionError: DEFINITION-392, tables without a common column.
    """
    if str(join.args.get("method") or "").upper() != "NATURAL":
        return join
    own = {name.name for name in right.names if name.name not in BOUNDS or name.bound}
    common = list(dict.fromkeys(name.name for name in left.names if name.name in own))
    if not common:
        fix = "Write JOIN ... ON ... with the columns that are equal."
        raise DefinitionError(
            text.at(join.this), "columns of one name in a NATURAL JOIN", "none", fix, code="DEFINITION-392"
        )
    join = join.copy()
    join.set("method", None)
    join.set("using", [exp.to_identifier(name, quoted=True) for name in common])
    return join


class Joiner:
    """One join of a statement.

    Args:
        text: of the statement.
        node: the join.
        left: the rows before it.
        right: the rows of its table, under their alias.
        where: conditions of WHERE, which an inner join takes as its own.
        read: parts of the statement whose columns are read behind the join.
    """

    def __init__(
        self,
        text: Text,
        node: exp.Join,
        left: Relation,
        right: Relation,
        where: Iterable[exp.Expr],
        read: list[exp.Expr],
    ) -> None:
        self.text, self.node, self.left, self.right, self.read = text, node, left, right, read
        self.both = replace(left, names=(*left.names, *right.names), separate=True)
        self.left, self.right = left, right = self._by_window([*conjuncts(node.args.get("on")), *where])
        self.both = replace(left, names=(*left.names, *right.names), windowed=None, ranked=None, separate=True)
        self.kind = kind_of(text, node, node.this)
        self.version = node.this.args.get("version")
        self.using = [identifier.name for identifier in node.args.get("using") or ()]
        conditions = list(conjuncts(node.args.get("on")))
        self.where = list(where)
        if self.kind == "inner":
            conditions, self.where = [*conditions, *self.where], []
        self.conditions = self._sorted(conditions)

    def _by_window(self, conditions: Iterable[exp.Expr]) -> tuple[Relation, Relation]:
        """Both sides; as rows of windows if they are results of the same windows, and a condition says that these are equal."""
        left, right = self.left, self.right
        window = None if left.spans is None or left.spans != right.spans else again(left.spans)
        if window is None or left.windowed is not None or right.windowed is not None:
            return left, right
        for condition in conditions:
            if not isinstance(condition, exp.EQ):
                continue
            sides = dict(self._side(part) for part in (condition.left, condition.right))
            bounds = {"" if name is None else name.bound for name in sides.values()}
            if sides.keys() == {"left", "right"} and len(bounds) == 1 and "" not in bounds:
                return rows_of(left, window), rows_of(right, window)
        return left, right

    def _sorted(self, conditions: Iterable[exp.Expr]) -> _Conditions:
        known = _Conditions()
        for name in self.using:
            left, right = ([one for one in side.names if one.name == name] for side in (self.left, self.right))
            if not left or not right:
                fix = f"Columns: {', '.join(one.name for one in self.both.names)}."
                raise DefinitionError(
                    self.text.at(self.node.this),
                    "a column of both tables in USING",
                    repr(name),
                    fix,
                    code="DEFINITION-392",
                )
            if name in BOUNDS and not left[0].text and not right[0].text:
                known.window.add(name)
            else:
                known.keys.append((left[0], right[0]))
        for condition in conditions:
            check_expression(self.text, condition)
            if not (self._is_key(condition, known) or self._is_time(condition, known)):
                known.other.append(condition)
        return known

    def _is_key(self, node: exp.Expr, known: _Conditions) -> bool:
        if not (isinstance(node, exp.EQ) and isinstance(node.left, exp.Column) and isinstance(node.right, exp.Column)):
            return False
        sides = [self._side(node.left), self._side(node.right)]
        if {side for side, _ in sides} != {"left", "right"}:
            return False
        (_, left), (_, right) = sorted(sides, key=lambda side: side[0] or "")
        assert left is not None
        assert right is not None
        windows = self.left.windowed is not None and self.right.windowed is not None
        if left.bound and right.bound == left.bound and windows and not left.text and not right.text:
            known.window.add(left.bound)
            return True
        used = {name.column for pair in known.keys for name in pair}
        if not left.column or not right.column or left.column in used or right.column in used:
            return False  # a second equality of one column is another condition
        known.keys.append((left, right))
        return True

    def _side(self, node: exp.Expr) -> tuple[str | None, Name | None]:
        located = self.both.find(self.text, node) if isinstance(node, exp.Column) else None
        if located is None:
            return None, None
        return ("right" if located[0].table in self.right.tables else "left"), located[0]

    def _is_time(self, node: exp.Expr, known: _Conditions) -> bool:
        if isinstance(node, exp.Between):
            low = exp.GTE(this=node.this, expression=node.args["low"])
            high = exp.LTE(this=node.this, expression=node.args["high"])
            parts = [self._bound(low), self._bound(high)]
            if None in parts:
                return False
            for part in parts:
                _narrowed(known, part)
            known.wider += [] if all(part[2] for part in parts if part is not None) else [node]
            return True
        bound = self._bound(node)
        if bound is None:
            return False
        _narrowed(known, bound)
        known.wider += [] if bound[2] else [node]
        return True

    def _bound(self, node: exp.Expr) -> tuple[str, timedelta, bool] | None:
        """``("lower" or "upper", bound of right - left, exact)`` of a comparison of two event times; None for any other condition.

        The event time of a pair lies behind that of one of its rows, so that a bound from such a row is wider, and not exact.
        """
        if not isinstance(node, (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)):
            return None
        first, second = self._moment(node.this), self._moment(node.expression)
        if first is None or second is None or {first[0], second[0]} != {"left", "right"}:
            return None
        difference = second[1] - first[1]  # first - second is at least, or at most, the difference
        greater = isinstance(node, (exp.GT, exp.GTE))
        if isinstance(node, exp.EQ):
            return None
        behind = {first[0]: first[2], second[0]: second[2]}
        exact = not any(behind.values())
        strict = _MILLISECOND if isinstance(node, (exp.GT, exp.LT)) else timedelta(0)
        if first[0] == "right":
            bound = ("lower", difference + strict) if greater else ("upper", difference - strict)
        else:
            bound = ("upper", -difference - strict) if greater else ("lower", -difference + strict)
        wider = -behind["left"] if bound[0] == "lower" else behind["right"]
        return bound[0], bound[1] + wider, exact

    def _moment(self, node: exp.Expr) -> tuple[str, timedelta, timedelta] | None:
        """``a.ts + INTERVAL '1' HOUR`` -> (side, length, ``Name.before``); None for what is no event time with a length."""
        if isinstance(node, exp.Paren):
            return self._moment(node.this)
        if isinstance(node, exp.Column):
            side, name = self._side(node)
            before = None if name is None else timedelta(0) if name.time else name.before
            return (side, timedelta(0), before) if side and before is not None else None
        if isinstance(node, (exp.Add, exp.Sub)) and duration(node.expression):
            moment = self._moment(node.this)
            by = length(self.text, node.expression)
            by = by if isinstance(node, exp.Add) else -by
            return None if moment is None else (moment[0], moment[1] + by, moment[2])
        return None

    @property
    def is_bounded(self) -> bool:
        """Whether the conditions bound the state: by versions, by a window, or by how far apart in time rows are."""
        known = self.conditions
        return self.version is not None or bool(known.window) or not (known.lower is None or known.upper is None)

    def joined(self, options: Options) -> tuple[Relation, list[exp.Expr]]:
        """(settings) -> the rows of the join, and the conditions that are left for a filter behind it."""
        text, known = self.text, self.conditions
        table = self.node.this
        if not known.keys and not known.window:
            fix = f"Write an equality of two columns: ON {self._example()}. {_BOUNDED}"
            raise DefinitionError(text.at(table), "a join with a key", "none", fix, code="DEFINITION-392")
        rest_of_right, behind = self._others()
        read = [*behind, *known.other, *known.wider]
        if known.wider and self.kind != "inner":
            fix = "Write an inner join, or the times of the table that has joined last."
            got = f"a time of a table joined before in a {self.kind} join"
            raise unsayable(text, known.wider[0], got, fix)
        left = self._side_of(self.left, [pair[0] for pair in known.keys], read, missing=self.kind in {"right", "full"})
        right_relation = self.right
        for condition in rest_of_right:
            filtered = right_relation.stream.filter(right_relation.scalar(text, condition))
            right_relation = replace(right_relation, stream=filtered)
        right = self._side_of(
            right_relation, [pair[1] for pair in known.keys], read, missing=self.kind in {"left", "full"}
        )
        joined = self._stream(left, right, options)
        for condition in known.wider:
            rendered = joined.scalar(text, condition, partial(self._in_milliseconds, joined))
            joined = replace(joined, stream=joined.stream.filter(rendered, on_error=options.on_error))
        return joined, behind

    def _in_milliseconds(self, joined: Relation, node: exp.Expr) -> str | None:
        """The text in place of a node of a condition of times: durations as numbers."""
        if isinstance(node, (exp.Add, exp.Sub)) and duration(node.expression):
            by = length(self.text, node.expression) // _MILLISECOND
            moment = self.text.of(node.this, joined.read(self.text))
            return f"timestampadd(MILLISECOND, {by if isinstance(node, exp.Add) else -by}, {moment})"
        return joined.read(self.text)(node)

    def _example(self) -> str:
        left, right = (side.names[0] for side in (self.left, self.right))
        return f"{left.table}.{left.name} = {right.table}.{right.name}"

    def _others(self) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """Conditions over the right's columns alone, for a filter before an outer join; and those for a filter behind the join."""
        if self.kind == "inner":
            return [], [*self.conditions.other, *self.where]
        if self.version is not None:
            return [], self.where  # the version that is valid is judged, and no older one is in its place
        before = []
        for condition in self.conditions.other:
            sides = {self._side(column)[0] for column in condition.find_all(exp.Column)}
            if sides != {"right"} or self.kind in {"right", "full"}:
                fix = "Put it into WHERE, or into a subquery of the table that it is about."
                raise unsayable(
                    self.text, condition, f"another condition than keys and times in a {self.kind} join", fix
                )
            before.append(condition)
        return before, self.where

    def _side_of(self, side: Relation, keys: list[Name], behind: list[exp.Expr], *, missing: bool) -> Side:
        """A side with the columns that are read behind the join; a copy of its keys if the side may be missing and they are read."""
        wanted = self._wanted(side, behind)
        key_columns = [key.column for key in keys]
        known = side.stream.schema.names
        columns = [c for c in known if c in wanted or c in key_columns] or [known[0]]
        windows_alone = not keys and bool(self.conditions.window)
        if windows_alone:
            key_columns = [new_name("window_key", known)]
        copies: dict[str, str] = {}
        for name in key_columns if missing else ():
            if name in wanted and name not in self.using:
                copies[name] = new_name(f"{(side.tables or ['side'])[0]}_{name}", columns)
        stream: Stream[Any] = side.stream
        present = new_name("present", columns) if missing and self._reads_bounds(side) else ""
        if tuple(columns) != stream.schema.names or copies or present or not keys:
            expressions: dict[str, Any] = {name: itself(name) for name in columns} | {
                new: itself(name) for name, new in copies.items()
            }
            expressions |= {key_columns[0]: self._window_key(side)} if windows_alone else {}
            stream = stream.select(**expressions | ({present: "true"} if present else {}))
        return Side(side, stream, tuple(key_columns), copies, present)

    def _window_key(self, side: Relation) -> str:
        """What divides the rows of a join that has no other key than the window: a bound of it, where the rows have one."""
        bound = min(self.conditions.window)
        columns = side.windowed.columns if side.windowed is not None else {}
        return f"unix_millis({itself(columns[bound])})" if bound in columns else "1"

    def _reads_bounds(self, side: Relation) -> bool:
        """Whether the statement reads the bounds of this side's window by the side's name: they are null where the side has no row."""
        columns = [column for part in self.read for column in part.find_all(exp.Column)]
        bounds = {name.name for name in side.names if name.bound}
        return side.windowed is not None and any(
            column.table in side.tables and column.name in bounds for column in columns
        )

    def _wanted(self, side: Relation, behind: list[exp.Expr]) -> set[str]:
        """The columns of a side's stream that the statement reads behind the join."""
        everything = {name.column for name in side.names if name.column}
        wanted: set[str] = set()
        for part in (*self.read, *behind):
            for star in part.find_all(exp.Star):
                column = star.parent
                table = column.table if isinstance(column, exp.Column) else ""
                if not isinstance(column, exp.Count) and (not table or table in side.tables):
                    return everything
            for column in part.find_all(exp.Column):
                if len(column.parts) == 1 and column.name in self.using:
                    continue  # a key, or a bound of the window
                if self._joins_later(column):
                    continue
                located = self.both.find(self.text, column) if not isinstance(column.this, exp.Star) else None
                if located is not None and located[0].column and located[0] in side.names:
                    wanted.add(located[0].column)
        return wanted

    def _joins_later(self, column: exp.Column) -> bool:
        """Whether a column is of a table that is joined behind this join."""
        head = column.parts[0].name.lower()
        known = {name.table.lower() for name in self.both.names} | {name.name.lower() for name in self.both.names}
        return len(column.parts) > 1 and head not in known

    def _stream(self, left: Side, right: Side, options: Options) -> Relation:
        known, text, table = self.conditions, self.text, self.node.this
        semi = self.kind in {"semi", "anti"}
        prefix = "" if semi else prefix_of(left, right)
        keyed, other = left.stream.key_by(*left.keys), right.stream.key_by(*right.keys)
        settings: dict[str, Any] = {"kind": self.kind, "prefix": prefix}
        bounds: tuple[Name, ...] = ()
        spans: Window | None = None
        if self.version is not None:
            stream = self._temporal(keyed, other, settings, options)
        elif known.window:
            stream = self._windowed(keyed, other, settings, options)
            own = [
                Name(table="", name=name, column=name, text=name, bound=name)
                for name in BOUNDS[:2]
                if left.present or right.present
            ]
            bounds = (*own, *_bounds_of(left, ""), *(() if semi else _bounds_of(right, prefix)))
            spans = left.relation.spans or (left.relation.windowed.window if left.relation.windowed else None)
        elif known.lower is None or known.upper is None:
            got = "none" if known.lower is None and known.upper is None else "one bound of the time between two rows"
            raise DefinitionError(
                text.at(table), "a join with a bound on its state", got, _BOUNDED, code="DEFINITION-392"
            )
        else:
            stream = keyed.interval_join(other, known.lower, known.upper, **settings)
        names = self._names(left, right, stream, prefix, semi=semi)
        relation = Relation(
            stream=stream,
            names=(*names, *bounds),
            landed=left.relation.landed and self.version is not None,
            spans=spans,
        )
        if self.version is None or self.kind == "inner" or not known.other:
            return relation
        return self._judged(
            relation,
            {name.column for name in names if name.table in right.relation.tables} - {*left.stream.schema.names},
        )

    def _names(self, left: Side, right: Side, stream: Stream[Any], prefix: str, *, semi: bool) -> list[Name]:
        """The names of both sides' columns as the result has them."""
        names: list[Name] = []
        for name in left.relation.names:
            column = left.copies.get(name.column, name.column)
            names += (
                [self._timed(replace(name, column=column, text=itself(column)), "left")]
                if name.column and column in stream.schema
                else []
            )
        for name in () if semi else right.relation.names:
            column = right.copies.get(name.column, name.column)
            column = left.keys[right.keys.index(column)] if column in right.keys else f"{prefix}{column}"
            if name.column and column in stream.schema:
                names.append(self._timed(replace(name, column=column, text=itself(column)), "right"))
        merged = set(self.using)
        names = [
            replace(n, table=n.table, column=n.column)
            for n in names
            if n.name not in merged or n.table in left.relation.tables
        ]
        return [replace(n, column=_key(left, n), text=itself(_key(left, n))) if n.name in merged else n for n in names]

    def _timed(self, name: Name, side: str) -> Name:
        """A name of a side, in the rows of the join: a pair has the later event time of its two rows."""
        before, known = timedelta(0) if name.time else name.before, self.conditions
        if self.version is not None:
            return name if side == "left" else replace(name, time=False, before=None)
        if before is None or known.window or known.lower is None or known.upper is None:
            return replace(name, time=False, before=None)
        before += max(timedelta(0), known.upper if side == "left" else -known.lower)
        return replace(name, time=not before, before=before or None)

    def _judged(self, relation: Relation, columns: set[str]) -> Relation:
        """The rows with null in the columns of a version for which another condition does not hold."""
        condition = " AND ".join(f"({relation.scalar(self.text, node)})" for node in self.conditions.other)
        judged: dict[str, Any] = {
            name: f"CASE WHEN {condition} THEN {itself(name)} END"
            for name in relation.stream.schema.names
            if name in columns
        }
        return replace(relation, stream=relation.stream.with_columns(**judged))

    def _temporal(self, keyed: Any, other: Any, settings: dict[str, Any], options: Options) -> Stream[Any]:
        moment = self.version.expression
        side = self._moment(moment)
        if side != ("left", timedelta(0), timedelta(0)):
            times = [name for name in self.left.names if name.time]
            fix = (
                f"Write FOR SYSTEM_TIME AS OF {times[0].table}.{times[0].name}."
                if times
                else "Read a source, whose rows have an event time."
            )
            raise DefinitionError(
                self.text.at(moment),
                "the event time of the rows before the join",
                self.text.of(moment),
                fix,
                code="DEFINITION-392",
            )
        if self.conditions.lower is not None or self.conditions.upper is not None or self.kind not in {"inner", "left"}:
            fix = "Write JOIN or LEFT JOIN with equalities alone; a version's time is its event time."
            raise unsayable(self.text, self.node.this, f"a {self.kind} join of versions with other conditions", fix)
        settings |= {"changes": True} if options.changes(self.left.stream) else {}
        result: Stream[Any] = keyed.temporal_join(other, allowed_lateness=options.lateness, **settings)
        return result

    def _windowed(self, keyed: Any, other: Any, settings: dict[str, Any], options: Options) -> Stream[Any]:
        left, right = self.left.windowed, self.right.windowed
        if (
            left is None
            or right is None
            or left.window != right.window
            or self.conditions.lower
            or self.conditions.upper
        ):
            fix = "Give both sides the same window, and no other condition of time."
            raise DefinitionError(
                self.text.at(self.node.this),
                "two tables with one window",
                "two windows that differ",
                fix,
                code="DEFINITION-392",
            )
        stream: Stream[Any] = keyed.window_join(other, left.window, allowed_lateness=options.lateness, **settings)
        return stream


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a join: its names, its stream with the columns that are read, the keys, key -> its copy, and a column that is null where the side has no row."""

    relation: Relation
    stream: Stream[Any]
    keys: tuple[str, ...]
    copies: dict[str, str]
    present: str = ""


def _bounds_of(side: Side, prefix: str) -> Iterator[Name]:
    """The bounds of a join's window by the names of a side's tables."""
    spans = side.relation.spans
    texts = bounds_again(spans) if spans is not None else dict(zip(BOUNDS, (*BOUNDS[:2], WINDOW_TIME), strict=True))
    for name in side.relation.names:
        if not name.bound or name.text:
            continue
        text = texts[name.bound]
        if side.present:
            text = f"CASE WHEN {itself(prefix + side.present)} THEN {text} END"
        column = text if text in BOUNDS else ""
        time = name.bound == BOUNDS[2] and not side.present
        yield Name(table=name.table, name=name.name, column=column, text=text, bound=name.bound, time=time)


def prefix_of(left: Side, right: Side) -> str:
    """What the right's columns beside its keys begin with in the result: their table, if one has the name of a column of the left."""
    twice = any(name in left.stream.schema for name in right.stream.schema.names if name not in right.keys)
    return f"{right.relation.tables[0]}_" if twice else ""


def _key(side: Side, name: Name) -> str:
    """The column of a name of USING."""
    return name.column if name.column in side.keys else name.name


def _narrowed(known: _Conditions, bound: tuple[str, timedelta, bool] | None) -> None:
    assert bound is not None
    kind, difference, _ = bound
    if kind == "lower":
        known.lower = difference if known.lower is None else max(known.lower, difference)
    else:
        known.upper = difference if known.upper is None else min(known.upper, difference)
