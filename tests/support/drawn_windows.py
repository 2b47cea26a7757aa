"""Drawn relations over rows that are final: windows of four kinds, rows of a window, results in order of event time, interval joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drawn_parts import JOINS, SOURCES, TIMES, Parts, Relation, over_window, unsaid

import floodmark as fm
from floodmark import Stream


class Windows(Parts):
    """Draws relations over windows and intervals."""

    def final(self) -> Relation:
        """A relation over windows, or in order of event time."""
        return self.drawn.choice([self.window, self.window, self.window, self.of_window, self.by_time, self.interval])()

    def filtered(self, table: str) -> tuple[str, Callable[[Stream[Any]], Stream[Any]]]:
        """(condition or "", the same for a stream)."""
        condition = self.condition(SOURCES[table]) if self.drawn.random() < 0.5 else ""
        return condition, lambda stream: stream.filter(condition) if condition else stream

    def window(self) -> Relation:
        """Aggregates of windows; by chance then aggregates of those of one window."""
        table = self.drawn.choice(sorted(SOURCES))
        self.read.add(table)
        time, columns = TIMES[table], SOURCES[table]
        keys, measures = self.some(list(columns), 0, 2), self.aggregates(columns)
        condition, filtering = self.filtered(table)
        having = self.drawn.choice(["", "", "COUNT(*) > 1"])
        kind = self.drawn.choice(["tumble", "hop", "cumulate", "session"])
        size, slide = self.drawn.choice([(5, 5), (7, 7), (30, 30)] if kind == "tumble" else [(10, 5), (9, 3), (60, 20)])
        partition = f"PARTITION BY {', '.join(keys)}, " if keys else ""
        windows: dict[str, tuple[str, Any]] = {
            "tumble": (f"TUMBLE({table}, {time}, '{size} minutes')", fm.Tumbling(f"{size} minutes")),
            "hop": (f"HOP({table}, {time}, '{slide} minutes', '{size} minutes')", fm.Sliding(f"{size} minutes", f"{slide} minutes")),
            "cumulate": (f"CUMULATE({table}, {time}, '{slide} minutes', '{size} minutes')", fm.Cumulative(f"{size} minutes", f"{slide} minutes")),
            "session": (
                f"TABLE(SESSION(TABLE {table} {partition.rstrip(', ')}, DESCRIPTOR({time}), INTERVAL '{slide}' MINUTE))",
                fm.Session(f"{slide} minutes"),
            ),
        }  # fmt: skip
        where = f"WHERE {condition}" if condition else ""
        head = ["window_start", "window_end"]
        texts = ", ".join([*keys, *head, *(f"{m[0]} AS {name}" for name, m in measures.items())])
        ducks = ", ".join([*keys, "ws AS window_start", "we AS window_end", *(f"{m[1]} AS {name}" for name, m in measures.items())])  # fmt: skip
        more = f"HAVING {having}" if having else ""
        sql = f"SELECT {texts} FROM {windows[kind][0]} {where} GROUP BY {', '.join([*keys, *head])} {more}"
        duck = f"SELECT {ducks} FROM ({_windowed(kind, table, time, size, slide, keys, where)}) GROUP BY {', '.join([*keys, 'ws', 'we'])} {more}"
        made = (
            {key: columns[key] for key in keys} | dict.fromkeys(head, "time") | {n: m[3] for n, m in measures.items()}
        )

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            stream, named = filtering(tables[table]), {name: m[2] for name, m in measures.items()}
            if having:
                named["size"] = fm.count()
            windowed = (stream.key_by(*keys) if keys else stream).window(windows[kind][1]).aggregate(**named)
            return (windowed.filter("size > 1") if having else windowed).select(*made)

        one = Relation(sql=sql, duck=duck, columns=made, fluent=fluent, shape=(kind,))
        return self.again(one) if self.drawn.random() < 0.3 and kind != "session" else one

    def again(self, of: Relation) -> Relation:
        """Aggregates of the results of one window."""
        measures, keys = self.aggregates({n: k for n, k in of.usable.items() if k != "time"} or {"window_start": "time"}), self.some(of.of("int", "text"), 0, 1)  # fmt: skip
        bounds = ["window_start", "window_end"]
        texts = [", ".join([*keys, *bounds, *(f"{m[at]} AS {name}" for name, m in measures.items())]) for at in (0, 1)]
        group = f"GROUP BY {', '.join([*keys, *bounds])}"
        (mine, theirs) = self.from_(of, self.name("q"))
        return Relation(
            sql=f"SELECT {texts[0]} FROM {mine} {group}",
            duck=f"SELECT {texts[1]} FROM {theirs} {group}",
            columns={key: of.columns[key] for key in keys} | dict.fromkeys(bounds, "time") | {n: m[3] for n, m in measures.items()},
            fluent=unsaid,
            shape=(*of.shape, "again"),
        )  # fmt: skip

    def of_window(self) -> Relation:
        """The first, or the different, rows of tumbling windows."""
        table = self.drawn.choice(sorted(SOURCES))
        self.read.add(table)
        time, columns = TIMES[table], SOURCES[table]
        size = self.drawn.choice([5, 7, 30])
        condition, filtering = self.filtered(table)
        where = f"WHERE {condition}" if condition else ""
        bounds = ["window_start", "window_end"]
        windows, theirs = (
            f"TUMBLE({table}, {time}, '{size} minutes')",
            f"({_windowed('tumble', table, time, size, size, [], where)})",
        )
        if self.drawn.random() < 0.4:
            names = self.some(list(columns), 1, 2)
            return Relation(
                sql=f"SELECT DISTINCT {', '.join([*names, *bounds])} FROM {windows} {where}",
                duck=f"SELECT DISTINCT {', '.join([*names, 'ws', 'we'])} FROM {theirs}",
                columns={n: columns[n] for n in names} | dict.fromkeys(bounds, "time"),
                fluent=unsaid,
                shape=("distinct of a window",),
            )
        keys, number, n = self.some(list(columns), 0, 1), self.name("n"), self.drawn.choice([1, 2])
        numbering = self.drawn.choice(["row_number", "rank", "dense_rank"])
        own = [c for c in columns if c not in keys]
        order = self.order(own if numbering == "row_number" else self.some(own, 1, 2))

        def ranked(start: str, end: str, of: str) -> str:
            within = ", ".join([start, end, *keys])
            inner = f"SELECT {', '.join(columns)}, {start} AS window_start, {end} AS window_end, {numbering.upper()}() OVER (PARTITION BY {within} ORDER BY {order}) AS {number} FROM {of}"
            return f"SELECT {', '.join([*columns, 'window_start', number])} FROM ({inner}) AS q WHERE {number} <= {n}"

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            stream = filtering(tables[table]).select(*columns)
            windowed = (stream.key_by(*keys) if keys else stream).window(fm.Tumbling(f"{size} minutes"))
            top = windowed.top(n, order.split(", "), number=number, numbering=numbering)
            return top.select(*columns, "window_start", number)

        return Relation(
            sql=ranked(*bounds, f"{windows} {where}"),
            duck=ranked("ws", "we", theirs),
            columns={**columns, "window_start": "time", number: "int"},
            fluent=fluent,
            shape=("top of a window",),
        )

    def by_time(self) -> Relation:
        """Results over rows in order of event time."""
        table = self.drawn.choice(sorted(SOURCES))
        self.read.add(table)
        time, columns, keys = TIMES[table], SOURCES[table], self.some(list(SOURCES[table]), 0, 1)
        measures = self.aggregates(columns)
        for name in measures:
            while "FILTER" in measures[name][0]:
                measures[name] = self.aggregate(columns)
        frame = self.drawn.choice(["", "RANGE INTERVAL '5' MINUTE PRECEDING", "ROWS 2 PRECEDING", "ROWS UNBOUNDED PRECEDING"])  # fmt: skip
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        condition, filtering = self.filtered(table)
        where = f"WHERE {condition}" if condition else ""
        texts = []
        for at, order in ((0, time), (1, f'"{time}", place' if "ROWS" in frame else f'"{time}"')):
            window = f"OVER ({partition}ORDER BY {order} {frame})"
            texts.append(
                ", ".join([*columns, *(f"{over_window(m[at], window)} AS {name}" for name, m in measures.items())])
            )
        settings: dict[str, Any] = {
            "": {}, "RANGE INTERVAL '5' MINUTE PRECEDING": {"within": "5 minutes"}, "ROWS 2 PRECEDING": {"rows": 2},
            "ROWS UNBOUNDED PRECEDING": {"rows": "all"},
        }[frame]  # fmt: skip

        def fluent(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
            stream, named = filtering(tables[table]).select(*columns), {name: m[2] for name, m in measures.items()}
            return (stream.key_by(*keys) if keys else stream).over(**settings, **named).select(*columns, *named)

        return Relation(
            sql=f"SELECT {texts[0]} FROM {table} {where}",
            duck=f"SELECT {texts[1]} FROM {table} {where}",
            columns=dict(columns) | {name: m[3] for name, m in measures.items()},
            fluent=fluent,
            shape=("over event time",),
        )

    def interval(self) -> Relation:
        """A join of rows at most some minutes apart."""
        self.read |= {"lefts", "rights"}
        kind, (low, high) = self.drawn.choice(sorted(JOINS)), self.drawn.choice([(-5, 0), (-2, 3), (0, 10)])
        keys = self.some(["k", "f"], 1, 2)
        where = self.drawn.choice(["", "", "WHERE l.a >= 0", "WHERE l.price IS NOT NULL"])
        on = " AND ".join(
            [*(f"l.{key} = r.{key}" for key in keys), f"r.seen BETWEEN l.at + INTERVAL '{low}' MINUTE AND l.at + INTERVAL '{high}' MINUTE"]
        )  # fmt: skip
        columns = {"k": "int", "a": "int", "price": "dec"}
        names = "l.k, l.a, l.price"
        if JOINS[kind] not in {"semi", "anti"}:
            names, columns = f"{names}, r.b AS b, r.note AS note, r.f AS other", {**columns, "b": "int", "note": "text", "other": "float"}  # fmt: skip
        sql = f"SELECT {names} FROM lefts AS l {kind} rights AS r ON {on} {where}"
        duck = sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI").replace("l.at", 'l."at"')
        return Relation(sql=sql, duck=duck, columns=columns, fluent=unsaid, shape=("interval", kind.lower()))


def _windowed(kind: str, table: str, time: str, size: int, slide: int, keys: Sequence[str], where: str) -> str:
    """Rows with the bounds ``ws`` and ``we`` of each window that they are in, for DuckDB."""
    time, epoch = f'"{time}"', "TIMESTAMPTZ '1970-01-01 00:00:00+00'"
    minutes = "INTERVAL '{} minutes'".format
    match kind:
        case "tumble" | "hop":
            start = f"time_bucket({minutes(slide)}, {time}, {epoch}) - i * {minutes(slide)}"
            rows = f"SELECT *, {start} AS ws, {start} + {minutes(size)} AS we FROM {table}, range({size // slide}) AS r(i) {where}"
        case "cumulate":
            start = f"time_bucket({minutes(size)}, {time}, {epoch})"
            end = f"{start} + (i + 1) * {minutes(slide)}"
            more = f"{where} AND" if where else "WHERE"
            if where:
                more = f"WHERE ({where.removeprefix('WHERE ')}) AND"
            rows = f"SELECT *, {start} AS ws, {end} AS we FROM {table}, range({size // slide}) AS r(i) {more} {time} < {end}"
        case _:
            by = f"PARTITION BY {', '.join(keys)} " if keys else ""
            before = f"SELECT *, LAG({time}) OVER ({by}ORDER BY {time}) AS before FROM {table} {where}"
            session = f"SUM(CASE WHEN before IS NULL OR {time} - before > {minutes(slide)} THEN 1 ELSE 0 END) OVER ({by}ORDER BY {time}, before NULLS FIRST ROWS UNBOUNDED PRECEDING)"
            within = ", ".join([*keys, "number"])
            numbered = f"SELECT *, {session} AS number FROM ({before})"
            rows = f"SELECT *, MIN({time}) OVER (PARTITION BY {within}) AS ws, MAX({time}) OVER (PARTITION BY {within}) + {minutes(slide)} AS we FROM ({numbered})"
    return rows
