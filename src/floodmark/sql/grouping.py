"""GROUP BY: a key, a window and aggregates of a statement as a step with state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.spec.windowing.aggregates import Builtin, count
from floodmark.spec.windowing.windows import Session, Window, bounded_in_time
from floodmark.sql.dialect import CHANGES, SPAN
from floodmark.sql.measures import is_aggregate, measure
from floodmark.sql.options import Options
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import BOUNDS, WINDOW_TIME, Item, Name, Relation, Windowed
from floodmark.sql.rows.sessions import in_sessions
from floodmark.sql.rows.sets import Keys, KeySets, combined, is_set, sets_of
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import again, bound_of, bounds_again, is_window, of_group


@dataclass(frozen=True, slots=True)
class Grouped:
    """The result of a GROUP BY.

    Args:
        stream: keys, bounds of the window, aggregates.
        known: expression over the rows before -> column of the stream.
        measures: aggregate -> column of the stream.
        bounds: bound of the window -> its text over the stream; empty for results without a window.
        spans: the windows of which the rows are results.
        sets: of CUBE, ROLLUP and GROUPING SETS; None for one set of keys.
    """

    text: Text
    before: Relation
    stream: Stream[Any]
    known: dict[str, str]
    measures: dict[Builtin, str]
    bounds: dict[str, str]
    spans: Window | None = None
    sets: KeySets | None = None

    def read(self, node: exp.Expr) -> str | None:
        """The text in place of a node of SELECT or HAVING; None for its own."""
        if is_aggregate(node):
            return itself(self.measures[measure(self.text, node, self.before)])
        if self.sets is not None and isinstance(node, (exp.Grouping, exp.GroupingId)):
            return self._set_of(node, self.sets)
        bound = bound_of(node) or (bound_in(self.text, node, self.before) if self.bounds else "")
        if bound and self.bounds:
            return self.bounds[bound]
        if SPAN not in node.meta and not isinstance(node, exp.Column):
            return None
        rendered = self.text.of(node, self.before.read(self.text)) if self._plain(node) else ""
        if rendered in self.known:
            return itself(self.known[rendered])
        if isinstance(node, exp.Column):
            located = self.before.find(self.text, node)
            if located is not None:
                name = node.name if any("start" in part.meta for part in node.parts) else self.text.of(node)
                got = f"'{name}', which is neither in GROUP BY nor in an aggregate"
                fix = f"Add {name} to GROUP BY, or take MAX({name}) or FIRST({name})."
                raise DefinitionError(self.text.at(node), "a column of the group", got, fix, code="DEFINITION-391")
        return None

    def _set_of(self, node: exp.Expr, sets: KeySets) -> str:
        """GROUPING of a key, and GROUPING_ID of all of them."""
        if isinstance(node, exp.GroupingId) and not node.expressions:
            return itself(sets.number)
        rendered = [self.text.of(part, self.before.read(self.text)) for part in node.expressions]
        unknown = next((text for text in rendered if text not in self.known), None)
        if unknown is not None or (isinstance(node, exp.Grouping) and len(rendered) != 1):
            fix = f"Keys: {', '.join(self.known)}. Write GROUPING(key), or GROUPING_ID() for all of them."
            raise DefinitionError(
                self.text.at(node), "a key of GROUP BY", self.text.of(node), fix, code="DEFINITION-391"
            )
        bits = [sets.left_out(self.known[text]) for text in rendered]
        return " + ".join(f"{bit} * {1 << (len(bits) - 1 - at)}" for at, bit in enumerate(bits))

    def _plain(self, node: exp.Expr) -> bool:
        """Whether an expression reads rows before the window alone."""
        if any(is_aggregate(part) or bound_of(part) for part in node.walk()):
            return False
        names = [self.before.find(self.text, column) for column in node.find_all(exp.Column)]
        return all(located is None or located[0].text for located in names)


class Grouping:
    """GROUP BY of one SELECT.

    Args:
        text: of the statement.
        select: the SELECT.
        relation: its rows, behind WHERE.
        items: its columns.
        renamed: column of the rows -> the name that it has as a key, by which SELECT has it.
    """

    def __init__(
        self,
        text: Text,
        select: exp.Select,
        relation: Relation,
        items: list[Item],
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.text, self.select, self.items, self.renamed = text, select, items, renamed
        group = select.args.get("group")
        self._check(group)
        self.relation, self.keys, self.sets = relation, list[exp.Expr](), list[list[Keys]]()
        self.by_window, self.by_results = bool(select.args.get("distinct")), False
        self.elements = self._resolved_elements(group)
        for node in self.elements:
            self._add(node)

    def _resolved_elements(self, group: exp.Group | None) -> list[exp.Expr]:
        """The elements of GROUP BY; of ``GROUP BY ALL`` the columns of SELECT without an aggregate, of ``a, b WITH CUBE`` the one element CUBE (a, b)."""
        if group is None:
            return []
        if group.args.get("all"):
            return [value for _, value in self.items if not any(map(is_aggregate, value.walk()))]
        elements = [self._resolved(part) for part in group.expressions]
        for name, kind in (("cube", exp.Cube), ("rollup", exp.Rollup)):
            if group.args.get(name):
                return [kind(expressions=elements)]
        return elements

    def _check(self, group: exp.Group | None) -> None:
        for name in ("grouping_sets", "totals") if group else ():
            value = group.args.get(name) if group else None
            if value:
                fix = "Write CUBE (a, b), ROLLUP (a, b) or GROUPING SETS ((a, b), (a), ()) as an element of GROUP BY."
                what = f"WITH {name.upper()}".replace("_", " ")
                raise unsayable(self.text, value[0] if isinstance(value, list) else self.select, what, fix)

    def _resolved(self, node: exp.Expr) -> exp.Expr:
        """The expression of a number or of an alias of SELECT in GROUP BY."""
        if isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.this) <= len(self.items):
            return self.items[int(node.this) - 1][1]
        if isinstance(node, exp.Tuple):
            raise unsayable(self.text, node, "columns in parentheses", "Write GROUP BY a, b.")
        if isinstance(node, exp.Column) and len(node.parts) == 1 and self.relation.find(self.text, node) is None:
            return next((value for name, value in self.items if name == node.name), node)
        return node

    def _add(self, node: exp.Expr) -> None:
        relation = self.relation
        if is_window(node):
            if relation.windowed is not None:
                fix = "Keep one of them; write a second operator for the second window."
                raise unsayable(self.text, node, "a second window", fix)
            self.relation = replace(relation, windowed=of_group(self.text, node, relation))
            self.by_window = True
        elif is_set(node):
            self.sets.append(sets_of(node))
        elif isinstance(node, exp.Column) and bound_in(self.text, node, relation):
            self.by_window, self.by_results = True, relation.windowed is None
        else:
            self.keys.append(node)

    def grouped(self, emit: str, options: Options, around: str = "") -> Grouped:
        """(what EMIT says, settings, what EMIT of the whole statement says) -> the result."""
        relation, text = self.relation, self.text
        windowed, spans = relation.windowed, relation.windowed.window if relation.windowed is not None else None
        bounds = dict(zip(BOUNDS, (*BOUNDS[:2], WINDOW_TIME), strict=True))
        if self.by_results and relation.spans is not None:
            window = again(relation.spans)
            assert window is not None
            windowed, spans, bounds = Windowed(window=window), relation.spans, bounds_again(relation.spans)
        lives = bool(options.ttl) and windowed is None and CHANGES in {emit, around}
        if lives:
            windowed, spans = Windowed(window=options.life(relation.stream)[0]), None
            self.relation = relation = replace(relation, windowed=windowed)
        if windowed is None and CHANGES not in {emit, around}:
            fix = (
                "Say over which time: GROUP BY window_start, window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)), or "
                "GROUP BY window(ts, '1 hour'); or say that each row changes the result so far, at the end: EMIT CHANGES. "
                'Over all rows there are now: floodmark sql "SELECT ...".'
            )
            at = self.select.args.get("group") or self.select
            raise DefinitionError(
                text.at(at), "an aggregate with a window", "one without an end", fix, code="DEFINITION-390"
            )
        if windowed is not None and not self.by_window and not lives:
            fix = "Add window_start, window_end to GROUP BY; or read the table without its window."
            at = self.select.args.get("group") or self.select
            got = "one over the rows of all windows"
            raise DefinitionError(text.at(at), "an aggregate of each window", got, fix, code="DEFINITION-390")
        if windowed is not None and emit == CHANGES and not lives:
            fix = "Leave EMIT CHANGES out; with lateness each late row revises its window."
            raise unsayable(text, self.select, "EMIT CHANGES of a window", fix)
        start = ""
        if self._is_of_all_keys(windowed):
            read = [*self.select.expressions, *self.keys, *_parts_of(self.select, "having")]
            relation, windowed, start = in_sessions(text, relation, read, options)
            bounds, spans = bounds | {BOUNDS[0]: itself(start)}, None
        key_sets = self._key_sets(relation) if self.sets else None
        stream, keys, known = self._keyed(relation) if key_sets is None else self._in_sets(relation, key_sets)
        keys += [start] if start else []
        measures = self._measures(relation, {*keys, *BOUNDS[:2]})
        named: dict[str, Any] = {name: aggregate for aggregate, name in measures.items()}
        if windowed is None:
            stream = stream.key_by(*keys).rolling(**named) if keys else stream.rolling(**named)
            return Grouped(text, relation, stream, known, measures, {}, sets=key_sets)
        settings: dict[str, Any] = (
            {"time": "processing"} if windowed.clocked else {"allowed_lateness": options.lateness}
        )
        settings |= {"late": options.late_of(stream), "on_error": options.on_error}
        settings = options.life(stream)[1] if lives else settings
        held = (
            stream.key_by(*keys).window(windowed.window, **settings)
            if keys
            else stream.window(windowed.window, **settings)
        )
        return Grouped(
            text,
            relation,
            held.aggregate(**named),
            known,
            measures,
            bounds if bounded_in_time(windowed.window) else {},
            spans,
            sets=key_sets,
        )

    def _is_of_all_keys(self, windowed: Windowed | None) -> bool:
        """Whether other columns than those of GROUP BY divide the sessions of a table function."""
        if windowed is None or not isinstance(windowed.window, Session) or windowed.partition is None:
            return False
        located = [self.relation.find(self.text, key) if isinstance(key, exp.Column) else None for key in self.keys]
        keys = {"" if name is None else name[0].column for name in located}
        return bool(self.sets) or set(windowed.partition) != keys

    def _key_sets(self, relation: Relation) -> KeySets:
        """The sets of keys, each key with a column of its own, as aggregates read the columns that the keys are of."""
        text, taken = self.text, [*relation.stream.schema.names, *BOUNDS]
        keys: dict[str, str] = {}
        names: dict[str, str] = {}

        def name_of(node: exp.Expr) -> str:
            rendered = relation.scalar(text, node)
            if rendered not in names:
                name = new_name(f"{derived_name(rendered)}_key", [*taken, *keys])
                names[rendered], keys[name] = name, rendered
            return names[rendered]

        parts: list[list[tuple[str, ...]]] = [[(name_of(node),)] for node in self.keys]
        parts += [[tuple(name_of(node) for node in chosen) for chosen in sets] for sets in self.sets]
        number = new_name("grouping_id", [*taken, *keys])
        return KeySets(keys=keys, sets=tuple(combined(text, self.select, parts)), number=number)

    def _in_sets(self, relation: Relation, sets: KeySets) -> tuple[Stream[Any], list[str], dict[str, str]]:
        """As ``_keyed``, for sets of keys."""
        known = {rendered: key for key, rendered in sets.keys.items()}
        return sets.rows(relation.stream), [*sets.keys, sets.number], known

    def _keyed(self, relation: Relation) -> tuple[Stream[Any], list[str], dict[str, str]]:
        """The stream with a column per key, the keys, and expression -> key."""
        text, known, new = self.text, dict[str, str](), dict[str, Any]()
        keys: list[str] = []
        for node in self.keys:
            if any(map(is_aggregate, node.walk())):
                raise unsayable(text, node, "an aggregate in GROUP BY", "Group by columns of the rows.")
            rendered = relation.scalar(text, node)
            name = self._key_name(node, rendered, relation)
            if rendered != itself(name) or name not in relation.stream.schema:
                new[name] = rendered
            known[rendered] = name
            keys += [name] if name not in keys else []
        return (relation.stream.with_columns(**new) if new else relation.stream), keys, known

    def _key_name(self, node: exp.Expr, rendered: str, relation: Relation) -> str:
        if isinstance(node, exp.Column):
            located = relation.find(self.text, node)
            if located is not None and located[0].column and itself(located[0].column) == rendered:
                return self.renamed.get(located[0].column, located[0].column)
        alias = next(
            (name for name, value in self.items if SPAN in value.meta and self._same(value, rendered, relation)), ""
        )
        name = alias or derived_name(rendered)
        return new_name(name, [*relation.stream.schema.names, *BOUNDS], "key")

    def _same(self, node: exp.Expr, rendered: str, relation: Relation) -> bool:
        if any(is_aggregate(part) or bound_of(part) for part in node.walk()):
            return False
        return self.text.of(node, relation.read(self.text)) == rendered if not _reads_bounds(node) else False

    def _measures(self, relation: Relation, taken: set[str]) -> dict[Builtin, str]:
        """Aggregate -> its column: the name in SELECT where it stands there alone, else one that its text gives."""
        measures: dict[Builtin, str] = {}
        taken = {*taken, "uid", *(name for name, value in self.items if not is_aggregate(value))}
        for name, node in self.items:
            if is_aggregate(node):
                aggregate = measure(self.text, node, relation)
                if aggregate not in measures and name not in measures.values() and name not in taken:
                    measures[aggregate] = name
        having = self.select.args.get("having")
        for node in _outermost([*(value for _, value in self.items), *([having.this] if having else [])]):
            aggregate = measure(self.text, node, relation)
            if aggregate not in measures:
                name = derived_name(self.text.of(node, relation.read(self.text)))
                while name in taken or name in measures.values():
                    name = f"{name}_2"
                measures[aggregate] = name
        return measures or {count(): "rows" if "rows" not in taken else "rows_2"}


def _parts_of(select: exp.Select, clause: str) -> list[exp.Expr]:
    part = select.args.get(clause)
    return [] if part is None else [part]


def _reads_bounds(node: exp.Expr) -> bool:
    return any(column.name.lower() in BOUNDS for column in node.find_all(exp.Column))


def _outermost(nodes: Iterable[exp.Expr]) -> Iterable[exp.Expr]:
    for node in nodes:
        if is_aggregate(node):
            yield node
        else:
            yield from _outermost(node.iter_expressions())


def bound_in(text: Text, node: exp.Expr, relation: Relation) -> str:
    """The bound of the window of some rows that a column is: of a window that is not aggregated yet, or of windows whose results they are."""
    if not isinstance(node, exp.Column):
        return ""
    if relation.windowed is not None:
        return node.name.lower() if node.name.lower() in BOUNDS else ""
    if relation.spans is None or again(relation.spans) is None:
        return ""
    located = relation.find(text, node)
    return "" if located is None else located[0].bound


def names_of(items: list[tuple[str, str]], bounds: dict[str, str]) -> tuple[Name, ...]:
    """The names of the columns of a SELECT behind a GROUP BY, some of which are bounds of its window."""
    of_text = {text: bound for bound, text in bounds.items()}
    return tuple(
        Name(
            table="",
            name=name,
            column=name,
            text=itself(name),
            time=of_text.get(text) == BOUNDS[2],
            bound=of_text.get(text, ""),
        )
        for name, text in items
    )
