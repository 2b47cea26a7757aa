"""Drawn relations whose results change: aggregates, joins, first and different rows, unions, results over rows, each over others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drawn_parts import CONDITIONS, EXPRESSIONS, JOINS, KEYS, Parts, Relation, over_window

import floodmark as fm
from floodmark import Stream


class Changing(Parts):
    """Draws relations whose results change."""

    def changing(self, depth: int) -> Relation:
        """A relation whose results change."""
        ways = [self.where, self.project, self.group, self.group, self.join, self.join, self.semi, self.top, self.top]
        ways += [self.distinct, self.union, self.over, self.unnest]
        return self.drawn.choice(ways)(depth)

    def inner(self, depth: int) -> Relation:
        """What a relation reads: at the last depth, or by chance, a table."""
        return self.source() if depth <= 1 or self.drawn.random() < 0.25 else self.changing(depth - 1)

    def where(self, depth: int) -> Relation:
        """SELECT columns FROM relation WHERE condition."""
        of = self.inner(depth)
        columns = of.usable
        condition, alias, names = self.condition(columns), self.name("q"), ", ".join(columns)
        mine, theirs = self.from_(of, alias)
        return Relation(
            sql=f"SELECT {names} FROM {mine} WHERE {condition}",
            duck=f"SELECT {names} FROM {theirs} WHERE {condition}",
            columns=columns,
            fluent=lambda tables: of.fluent(tables).filter(condition).select(*columns),
            shape=(*of.shape, "where"),
        )

    def project(self, depth: int) -> Relation:
        """SELECT expressions FROM relation."""
        of, made, columns = self.inner(depth), dict[str, str](), dict[str, str]()
        for name in self.some(list(of.usable), 2):
            new, kind = self.name("c"), of.columns[name]
            made[new] = self.drawn.choice(EXPRESSIONS[kind]).format(name)
            columns[new] = kind
        return self.named(of, made, columns)

    def named(self, of: Relation, made: Mapping[str, str], columns: dict[str, str]) -> Relation:
        """A relation with new columns."""
        alias = self.name("q")
        mine, theirs = self.from_(of, alias)
        text = ", ".join(f"{expression} AS {name}" for name, expression in made.items())
        return Relation(
            sql=f"SELECT {text} FROM {mine}",
            duck=f"SELECT {text} FROM {theirs}".replace("2.5D", "2.5"),
            columns=columns,
            fluent=lambda tables: of.fluent(tables).select(**made),
            shape=(*of.shape, "project"),
        )

    def group(self, depth: int) -> Relation:
        """SELECT keys, aggregates FROM relation GROUP BY keys HAVING condition."""
        of = self.inner(depth)
        alias, keys = self.name("q"), self.some(of.of(*KEYS), 0, 2)
        measures = self.aggregates(of.usable)
        mine, theirs = self.from_(of, alias)
        having = self.drawn.choice(["", "", "COUNT(*) > 1", "COUNT(*) % 2 = 1"])
        group = f"GROUP BY {', '.join(keys)}" if keys else ""
        texts = ", ".join([*keys, *(f"{m[0]} AS {name}" for name, m in measures.items())])
        duck = ", ".join([*keys, *(f"{m[1]} AS {name}" for name, m in measures.items())])
        columns = {key: of.columns[key] for key in keys} | {name: m[3] for name, m in measures.items()}

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            stream, named = of.fluent(tables), {name: m[2] for name, m in measures.items()}
            if having:
                named["size"] = fm.count()
            stream = stream.key_by(*keys).rolling(**named) if keys else stream.rolling(**named)
            return (stream.filter(having.replace("COUNT(*)", "size")) if having else stream).select(*columns)

        return Relation(
            sql=f"SELECT {texts} FROM {mine} {group} {f'HAVING {having}' if having else ''}",
            duck=f"SELECT {duck} FROM {theirs} {group} HAVING {having or 'COUNT(*) > 0'}",
            columns=columns,
            fluent=fluent,
            shape=(*of.shape, "group"),
        )

    def join(self, depth: int) -> Relation:
        """A join of two relations by equal columns, a further condition, or both."""
        left, right = self.inner(depth), self.inner(depth - 1)
        pairs = [(a, b) for a in left.of(*KEYS) for b in right.of(*KEYS) if left.columns[a] == right.columns[b]]
        kind, one, two = self.drawn.choice(sorted(JOINS)), self.name("l"), self.name("r")
        equal = self.drawn.sample(pairs, min(len(pairs), self.drawn.choice([1, 1, 1, 2])))
        left_names = {name: self.name("x") for name in self.some(list(left.usable), 1, 4)}
        right_names = {name: self.name("y") for name in self.some(list(right.usable), 1, 3)}
        further, said = self.further(left, right, one, two)
        if equal and self.drawn.random() < 0.5:
            further = said = ""
        on = " AND ".join([*(f"{one}.{a} = {two}.{b}" for a, b in equal), *([further] if further else [])])
        sides = [left_names] if kind in {"LEFT SEMI JOIN", "LEFT ANTI JOIN"} else [left_names, right_names]
        texts = ", ".join(
            f"{alias}.{old} AS {new}"
            for alias, names in zip((one, two), sides, strict=False)
            for old, new in names.items()
        )
        (mine, theirs), (other, others) = self.from_(left, one), self.from_(right, two)
        columns = {new: left.columns[old] for old, new in left_names.items()}
        if len(sides) == 2:
            columns |= {new: right.columns[old] for old, new in right_names.items()}

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            keys = {f"j{n}": pair for n, pair in enumerate(equal)}
            one = left.fluent(tables).select(
                **{key: _key(left, a) for key, (a, _) in keys.items()}, **{f"u_{name}": name for name in left.usable},
                **{new: old for old, new in left_names.items()},
            )  # fmt: skip
            two = right.fluent(tables).select(
                **{key: _key(right, b) for key, (_, b) in keys.items()}, **{f"v_{name}": name for name in right.usable},
                **{new: old for old, new in right_names.items()},
            )  # fmt: skip
            how: dict[str, Any] = {"kind": JOINS[kind], "on": said}
            both = one.key_by(*keys).regular_join(two.key_by(*keys), **how) if keys else one.regular_join(two, **how)
            return both.select(*columns)

        duck = kind.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
        return Relation(
            sql=f"SELECT {texts} FROM {mine} {kind} {other} ON {on}",
            duck=f"SELECT {texts} FROM {theirs} {duck} {others} ON {on}",
            columns=columns,
            fluent=fluent,
            shape=(*left.shape, *right.shape, kind.lower()),
        )

    def further(self, left: Relation, right: Relation, one: str, two: str) -> tuple[str, str]:
        """A condition over columns of both, for SQL and by the names of the fluent join."""
        same = [(a, b) for a in left.of(*KEYS) for b in right.of(*KEYS) if left.columns[a] == right.columns[b]]
        if not same or self.drawn.random() < 0.4:
            name = self.drawn.choice(right.of(*CONDITIONS))
            text = self.drawn.choice(CONDITIONS[right.columns[name]])
            return text.format(f"{two}.{name}"), text.format(f"v_{name}")
        (a, b), sign = self.drawn.choice(same), self.drawn.choice(["<", ">=", "<>"])
        return f"{one}.{a} {sign} {two}.{b}", f"u_{a} {sign} v_{b}"

    def semi(self, depth: int) -> Relation:
        """WHERE with IN or EXISTS over another relation."""
        left, right = self.inner(depth), self.source()
        pairs = [(a, b) for a in left.of("int", "float") for b in right.of("int", "float") if left.columns[a] == right.columns[b]]  # fmt: skip
        if not pairs:
            return self.where(depth)
        (a, b), one, two = self.drawn.choice(pairs), self.name("l"), self.name("r")
        how = self.drawn.choice(["IN", "EXISTS", "NOT EXISTS"])
        condition = self.condition(right.usable)
        columns = left.usable
        names, (mine, theirs) = ", ".join(f"{one}.{c}" for c in columns), self.from_(left, one)  # fmt: skip
        if how == "IN":
            where = f"{one}.{a} IN (SELECT {b} FROM {right.table} WHERE {condition})"
        else:
            where = f"{how} (SELECT 1 FROM (SELECT * FROM {right.table} WHERE {condition}) AS {two} WHERE {two}.{b} = {one}.{a})"

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            two = right.fluent(tables).filter(condition).select(j=_key(right, b))
            one = left.fluent(tables).with_columns(j=_key(left, a))
            return (
                one.key_by("j").regular_join(two.key_by("j"), kind="anti" if "NOT" in how else "semi").select(*columns)
            )

        return Relation(
            sql=f"SELECT {names} FROM {mine} WHERE {where}",
            duck=f"SELECT {names} FROM {theirs} WHERE {where}",
            columns=columns,
            fluent=fluent,
            shape=(*left.shape, how.lower()),
        )

    def top(self, depth: int) -> Relation:
        """The first rows of each key, with their number or without."""
        of = self.inner(depth)
        columns, number, n = of.usable, self.name("n"), self.drawn.choice([1, 1, 2, 3])
        numbering = self.drawn.choice(["row_number", "row_number", "rank", "dense_rank"])
        keys = self.some(of.of(*KEYS), 0, 2)
        # rows that are equal in the order are equal in all, or come together
        own = [c for c in columns if c not in keys]
        order = self.order(own if numbering == "row_number" else self.some(own or list(columns), 1, 2))
        if not order:
            order = self.order(list(columns))
        names, shown = ", ".join(columns), self.drawn.random() < 0.6
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        alias, outer = self.name("q"), self.name("q")
        mine, theirs = self.from_(of, alias)
        ranked = f"SELECT {names}, {numbering.upper()}() OVER ({partition}ORDER BY {order}) AS {number} FROM "
        result = f"SELECT {names}{f', {number}' if shown else ''} FROM "
        columns = dict(columns) | ({number: "int"} if shown else {})

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            settings: dict[str, Any] = {"number": number if shown else "", "numbering": numbering}
            stream = of.fluent(tables).select(*of.usable)
            by = order.split(", ")
            return (stream.key_by(*keys).top(n, by, **settings) if keys else stream.top(n, by, **settings)).select(
                *columns
            )

        return Relation(
            sql=f"{result}({ranked}{mine}) AS {outer} WHERE {number} <= {n}",
            duck=f"{result}({ranked}{theirs}) AS {outer} WHERE {number} <= {n}",
            columns=columns,
            fluent=fluent,
            shape=(*of.shape, f"top by {numbering}"),
        )

    def distinct(self, depth: int) -> Relation:
        """SELECT DISTINCT."""
        of = self.inner(depth)
        columns = {name: of.columns[name] for name in self.some(list(of.usable), 1, 2)}
        (mine, theirs), names = self.from_(of, self.name("q")), ", ".join(columns)
        return Relation(
            sql=f"SELECT DISTINCT {names} FROM {mine}",
            duck=f"SELECT DISTINCT {names} FROM {theirs}",
            columns=columns,
            fluent=lambda tables: of.fluent(tables).select(*columns).distinct(),
            shape=(*of.shape, "distinct"),
        )

    def union(self, depth: int) -> Relation:
        """UNION and UNION ALL of two relations."""
        left, right = self.inner(depth), self.inner(depth - 1)
        pairs = [(a, b) for a in left.of("int", "float", "text") for b in right.of("int", "float", "text") if left.columns[a] == right.columns[b]]  # fmt: skip
        if not pairs:
            return self.distinct(depth)
        chosen = {self.name("c"): pair for pair in self.drawn.sample(pairs, min(len(pairs), self.drawn.choice([1, 2])))}
        columns = {name: left.columns[a] for name, (a, _) in chosen.items()}
        sides = [self.named(of, {name: pair[at] for name, pair in chosen.items()}, columns) for at, of in enumerate((left, right))]  # fmt: skip
        word = self.drawn.choice(["UNION", "UNION ALL"])

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            both = sides[0].fluent(tables).union(sides[1].fluent(tables))
            return both.distinct() if word == "UNION" else both

        return Relation(
            sql=f"{sides[0].sql} {word} {sides[1].sql}",
            duck=f"{sides[0].duck} {word} {sides[1].duck}",
            columns=columns,
            fluent=fluent,
            shape=(*left.shape, *right.shape, word.lower()),
        )

    def over(self, depth: int) -> Relation:
        """Results over the rows of a key in an order."""
        of = self.inner(depth)
        columns, keys = of.usable, self.some(of.of(*KEYS), 0, 1)
        own = [c for c in columns if c not in keys] or list(columns)
        by_rows = self.drawn.random() < 0.5
        order = self.order(own if by_rows else self.some(own, 1, 2))
        rows = self.drawn.choice([1, 2, None])
        frame = "" if not by_rows else f"ROWS {'UNBOUNDED' if rows is None else rows} PRECEDING"
        measures = self.aggregates(columns)
        for name in measures:
            while any(word in measures[name][0] for word in ("FILTER", "STDDEV", "MEDIAN")):
                measures[name] = self.aggregate(columns)
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        (mine, theirs), window = self.from_(of, self.name("q")), f"OVER ({partition}ORDER BY {order} {frame})"
        texts = [
            ", ".join([*columns, *(f"{over_window(m[place], window)} AS {name}" for name, m in measures.items())])
            for place in (0, 1)
        ]
        named = {name: m[2] for name, m in measures.items()}

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            stream = of.fluent(tables).select(*columns)
            settings: dict[str, Any] = {"order": order.split(", ")} | ({"rows": rows or "all"} if by_rows else {})
            return (stream.key_by(*keys) if keys else stream).over(**settings, **named).select(*columns, *measures)

        return Relation(
            sql=f"SELECT {texts[0]} FROM {mine}",
            duck=f"SELECT {texts[1]} FROM {theirs}",
            columns=dict(columns) | {name: m[3] for name, m in measures.items()},
            fluent=fluent,
            shape=(*of.shape, "over rows" if by_rows else "over values"),
        )

    def unnest(self, depth: int) -> Relation:
        """A row for each element of an array."""
        of = self.inner(depth)
        kinds = [kind for kind in ("int", "float", "text") if of.of(kind)]
        if not kinds:
            return self.where(depth)
        kind, columns = self.drawn.choice(kinds), {n: of.columns[n] for n in self.some(list(of.usable), 1, 3)}
        items, new, alias, unnested = [self.drawn.choice(of.of(kind)) for _ in range(2)], self.name("e"), self.name("q"), self.name("u")  # fmt: skip
        (mine, theirs), names = self.from_(of, alias), ", ".join(columns)
        array = f"array({', '.join(items)})"
        return Relation(
            sql=f"SELECT {names}, {new} FROM {mine} CROSS JOIN UNNEST({array}) AS {unnested}({new})",
            duck=f"SELECT {names}, unnest([{', '.join(items)}]) AS {new} FROM {theirs}",
            columns=columns | {new: kind},
            fluent=lambda tables: of.fluent(tables).unnest(array, new).select(*columns, new),
            shape=(*of.shape, "unnest"),
        )


def _key(relation: Relation, name: str) -> str:
    """A column as a key of a fluent join, whose sides have one type: whole numbers are int or bigint."""
    return f"CAST({name} AS BIGINT)" if relation.columns[name] == "int" else name
