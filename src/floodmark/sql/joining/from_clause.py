"""FROM and WHERE of a SELECT: tables, windows and joins of them as rows, and the conditions that are still to be filtered by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from floodmark.core.errors import DefinitionError, closest
from floodmark.sql.dialect import CHANGES, WindowTable
from floodmark.sql.joining.constants import Constants, values_of
from floodmark.sql.joining.joins import Joiner, conjuncts, kind_of, natural
from floodmark.sql.joining.lateral import NEVER_NULL, without_nulls
from floodmark.sql.joining.lookups import LookupJoiner
from floodmark.sql.joining.marks import made_columns, with_marked_columns, with_marks
from floodmark.sql.joining.reads import Reads
from floodmark.sql.joining.regular import RegularJoiner
from floodmark.sql.joining.subqueries import outer_columns, subquery_joins, with_inner_tables
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.reading.row_pattern import RowPattern
from floodmark.sql.refusals import check_clauses, check_expression, unsayable
from floodmark.sql.relation import BOUNDS, Name, Relation
from floodmark.sql.rows.matches import matches
from floodmark.sql.rows.tail import ORDERED
from floodmark.sql.rows.unnest import generators, in_windows, unnested
from floodmark.sql.text import Text
from floodmark.sql.windows import of_table

Tables = Mapping[str, Relation]
"""Name of an input or of a WITH -> its rows."""
Query = Callable[[exp.Expr, Tables], Relation]
"""A SELECT or a UNION ALL -> its rows."""
Numbered = Callable[[Relation, exp.Expr], Relation]
"""(rows, what makes them) -> the rows with the numbering that they say."""
FirstRows = Callable[[exp.Select, Relation, list[exp.Expr]], tuple[Relation, list[exp.Expr]]]
"""(a SELECT, rows with a numbering, conditions of WHERE) -> the first rows, and the conditions that are left; the same rows where no first ones are taken."""
_BY_ITSELF = {"right", "full"}
"""Kinds of joins whose second table has rows without a partner."""
FIRSTS = "first rows"
"""Entry in the meta of a SELECT: its first rows are taken before the joins of its FROM."""


class FromClause:
    """FROM and WHERE of the SELECTs of a statement.

    Args:
        text: of the statement.
        options: of the steps with state.
        query: of a subquery.
        numbered: numbers the rows of a subquery of which not the first ones alone are taken.
        first_rows: takes the first rows of a subquery.
    """

    def __init__(self, text: Text, options: Options, query: Query, numbered: Numbered, first_rows: FirstRows) -> None:
        self.text, self.options, self.query = text, options, query
        self.numbered, self.first_rows = numbered, first_rows
        self.bounds_of_rows = False
        """Whether a window of FROM is two columns of each row, and no division of the rows."""
        self.single_row: Relation | None = None
        """The row whose columns are constants, where results may change."""

    def rows(self, node: exp.Select, tables: Tables, emit: str) -> tuple[Relation, list[exp.Expr]]:
        """(a SELECT, the tables, what EMIT of the whole says) -> the rows of FROM with its joins, and the conditions that WHERE still has to filter by."""
        source = node.args["from_"].this
        where = node.args["where"].this if node.args.get("where") is not None else None
        conditions = list(conjuncts(where))
        rows_of_rows, joins = generators(node)
        if values_of(source) is not None and joins and not (joins[0].side or joins[0].kind in {"SEMI", "ANTI"}):
            turned = joins[0].copy()  # VALUES JOIN t is t JOIN VALUES
            turned.set("this", source)
            source, joins = joins[0].this, [turned, *joins[1:]]
        relation = self._table(source, tables)
        read = [part for name in ("expressions", "group", "having", "qualify") for part in _listed(node.args.get(name))]
        read = [column for part in read for column in (outer_columns(part) if part.find(exp.Query) else [part])]
        read += [*rows_of_rows, *node.meta.get(ORDERED, ())]
        reads = Reads(node, joins)
        ranked = relation.ranked
        if ranked is not None and (joins or rows_of_rows or reads.asked) and reads.number(ranked, source):
            constant = not reads.asked and all(self._keeps_rows(join) for join in joins)
            if constant and (joins or rows_of_rows):  # of which the numbers are those of the rows before
                relation, conditions = self.first_rows(node, relation, conditions)
            if joins or rows_of_rows or emit == CHANGES:
                relation = self.numbered(relation, source)
        compared = [part for part in conditions if joins and emit == CHANGES and part.find(exp.Query) is not None]
        conditions = [part for part in conditions if part not in compared]
        read += [column for part in compared for column in outer_columns(part)]
        for number, join in enumerate(joins):
            following = joins[number + 1 :]
            relation, conditions = self._joined(relation, join, tables, conditions, read, following, emit, reads)
        conditions = [*conditions, *compared]
        for generator in rows_of_rows:
            relation = unnested(self.text, generator, relation, self.options)
        if node.meta.get(FIRSTS):
            return relation, conditions
        if emit != CHANGES:
            return (
                relation,
                conditions if joins or not conditions or relation.ranked is not None or where is None else [where],
            )
        joined = self._with_subqueries(node, relation, tables, conditions, read, reads)
        if joins or not conditions or joined[0] is not relation:
            return joined
        return relation, conditions if relation.ranked is not None or where is None else [where]

    def _keeps_rows(self, join: exp.Join) -> bool:
        """Whether a join is with rows that are constants, none of which is a row of its own where it has no partner."""
        values = values_of(join.this)
        return values is not None and kind_of(self.text, join, values) not in _BY_ITSELF

    def _joined(
        self,
        relation: Relation,
        join: exp.Join,
        tables: Tables,
        conditions: list[exp.Expr],
        read: list[exp.Expr],
        following: list[exp.Join],
        emit: str,
        reads: Reads,
    ) -> tuple[Relation, list[exp.Expr]]:
        """The rows of a join, and the conditions of WHERE that are still to be filtered by.

        Args:
            relation: the rows before it.
            join: the join.
            tables: of the statement.
            conditions: of WHERE.
            read: parts of the statement whose columns are read behind all joins.
            following: the joins behind it.
            emit: what EMIT of the whole says.
            reads: what the SELECT reads.
        """
        constants = values_of(join.this)
        outer = constants is not None and kind_of(self.text, join, constants) in _BY_ITSELF
        if constants is not None and not (outer and self.single_row is not None):
            return Constants(self.text, constants).joined(join, relation, self.options), conditions
        right = self._table(join.this, tables, joined=True)
        if right.ranked is not None and reads.number(right.ranked, join.this, join):
            right = self.numbered(right, join.this)
        if right.lookup is not None:
            if relation.windowed is not None:
                fix = "Join it in a SELECT around the window, or within it before."
                raise unsayable(self.text, join.this, "a lookup table beside a window", fix)
            relation = self.numbered(relation, join.this)
            return LookupJoiner(self.text, join, relation, right).joined(self.options, conditions)
        for alias in sorted(set(right.tables) & set(relation.tables)):
            fix = f"Write {join.this.name} AS b."
            raise DefinitionError(
                self.text.at(join.this), "tables with different names", f"'{alias}' twice", fix, code="DEFINITION-393"
            )
        # by its number too, where the other table has a column of that name
        if str(join.args.get("method") or "").upper() == "NATURAL":
            relation, right = (
                self.numbered(rows, join.this) if rows.ranked is not None and other.has(rows.ranked.name) else rows
                for rows, other in ((relation, right), (right, relation))
            )
        join = natural(self.text, join, relation, right)
        own, later = (conditions, []) if not following else _divided(conditions, [*relation.tables, *right.tables])
        if join.meta.get(NEVER_NULL):  # a condition on the count holds for 0, too
            own, later = [], conditions
        behind = [*read, *later, *(other.args["on"] for other in following if other.args.get("on") is not None)]
        arguments = self.text, join, relation, right, own, behind
        joiner = Joiner(*arguments)
        if emit == CHANGES and not joiner.is_bounded:
            joiner = RegularJoiner(*arguments)
        relation, conditions = joiner.joined(self.options)
        return without_nulls(relation, join, right), [*conditions, *later]

    def _with_subqueries(
        self,
        node: exp.Select,
        relation: Relation,
        tables: Tables,
        conditions: list[exp.Expr],
        read: list[exp.Expr],
        reads: Reads,
    ) -> tuple[Relation, list[exp.Expr]]:
        """The rows joined with those of subqueries in WHERE, and the conditions that are still to be filtered by."""

        def table(inner: exp.Expr, *, whole: bool = True) -> Relation:
            """The rows of a subquery, which may be the whole of IN: its number is compared, then."""
            rows = self._table(inner, tables, joined=True)
            compared = rows.ranked is not None and (whole or reads.number(rows.ranked, inner, exp.Join(kind="SEMI")))
            return self.numbered(rows, inner) if compared else rows

        rows = replace(relation, ranked=None)  # a number that is left is read nowhere
        marked, left = with_marks(self.text, rows, conditions, read, table, self.options)
        if marked.windowed is None:
            marked = with_marked_columns(self.text, marked, node, [*read, *left], table, self.options)
        if marked is not rows:
            relation, conditions = marked, left
            read = [*read, *made_columns(relation)]
        inner, conditions = subquery_joins(self.text, conditions)
        if inner and relation.ranked is None:  # before the join, where conditions keep rows out of the state
            relation, conditions = self.filtered(relation, node, conditions), []
        own = [table(each.node.this, whole=bool(each.compared) and not each.columns) for each in inner]
        pairs = [(each, with_inner_tables(each, rows, relation.tables)) for each, rows in zip(inner, own, strict=True)]
        for number, (subquery, right) in enumerate(pairs):
            later = [column for each, rows in pairs[number + 1 :] for column in each.outer_columns(rows)]
            if subquery.compared and not subquery.columns:  # its column is in no other expression
                names = tuple(replace(name, name=f"{name.table}_{name.name}") for name in right.names)
                right = replace(right, names=names)  # noqa: PLW2901 - under other names
            settings = {"compared": subquery.compared, "columns": subquery.columns}
            joiner = RegularJoiner(
                self.text, subquery.node, relation, right, [], [*read, *conditions, *later], **settings
            )
            relation, _ = joiner.joined(self.options)
        return relation, conditions

    def filtered(self, relation: Relation, node: exp.Select, conditions: list[exp.Expr]) -> Relation:
        """The rows for which some conditions of the WHERE of a SELECT hold."""
        where = node.args.get("where")
        whole = where.this if where is not None else None
        if conditions and whole is not None and list(map(id, conditions)) == list(map(id, conjuncts(whole))):
            conditions = [whole]
        stream = relation.stream
        for condition in conditions:
            self._check(condition, "WHERE", "Write HAVING, which is over the result of the aggregates.")
            rendered = relation.scalar(self.text, condition)
            stream = stream.filter(rendered, on_error=self.options.on_error)
        return replace(relation, stream=stream)

    def _check(self, node: exp.Expr, where: str, fix: str) -> None:
        check_expression(self.text, node)
        aggregate = next((part for part in node.walk() if is_aggregate(part)), None)
        if aggregate is not None:
            raise unsayable(self.text, aggregate, f"an aggregate in {where}", fix)

    def _table(self, node: exp.Expr, tables: Tables, *, joined: bool = False) -> Relation:
        """The rows of a table, a subquery or a window of FROM, under their alias."""
        alias = _alias(node)
        if isinstance(node, exp.Subquery):
            check_clauses(self.text, node)
            rows = self.query(node.this, tables).with_columns(self.text, node.args.get("alias"))
            return rows.renamed(alias)
        if isinstance(node, WindowTable):
            inner = self._table(node.this, tables)
            windowed = of_table(self.text, node, inner)
            if inner.windowed is not None:
                fix = "Aggregate over the inner one in a subquery, or keep one of them."
                raise unsayable(self.text, node, "a window over rows of a window", fix)
            own = [name for name in inner.names if name.name not in BOUNDS]
            divided = in_windows(windowed, inner, self.options) if self.bounds_of_rows else None
            if divided is not None:
                both = [Name(table=alias, name=name, column=name, text=name) for name in BOUNDS]
                return replace(divided, names=(*own, *both)).renamed(alias or _alias(node.this))
            bounds = [Name(table=alias, name=name, text="", time=name == BOUNDS[2], bound=name) for name in BOUNDS]
            return replace(inner, names=(*own, *bounds), windowed=windowed, spans=None).renamed(
                alias or _alias(node.this)
            )
        if isinstance(node, RowPattern):
            inner = self._table(node.this, tables)
            return matches(self.text, node, inner, alias or next(iter(inner.tables), ""), self.options)
        constants = values_of(node)
        if constants is not None and self.single_row is not None:
            return Constants(self.text, constants).alone(self.single_row, self.options).renamed(alias)
        if constants is not None:
            fix = (
                "Join it with a table: FROM t JOIN (VALUES (1, 'a'), (2, 'b')) AS v(number, name) ON t.number = v.number; or end the statement with EMIT "
                "CHANGES, where the rows are there from the first row of another table on. Rows alone are the file of a source."
            )
            raise unsayable(self.text, node, "VALUES without a table, of results that do not change", fix)
        return self._named(node, tables, joined=joined)

    def _named(self, node: exp.Expr, tables: Tables, *, joined: bool) -> Relation:
        """The rows of a table by its name, under its alias."""
        if isinstance(node, exp.Lateral):
            fix = (
                "Write a join with a bound: FROM a JOIN b ON b.k = a.k AND b.ts BETWEEN ...; or say that results change, at the end: EMIT CHANGES. LATERAL "
                "TABLE(f(a.x)) is a function of rows."
            )
            raise unsayable(self.text, node, "LATERAL, a SELECT for each row, of results that do not change", fix)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise unsayable(
                self.text,
                node,
                f"{self.text.of(node) if node.meta.get('span') else node.key.upper()} in FROM",
                "Read a table by its name; TUMBLE, HOP, SESSION and CALENDAR make windows of it.",
            )
        check_clauses(self.text, node)
        known = {name.lower(): relation for name, relation in tables.items()}
        rows = known.get(node.name.lower())
        if rows is not None and rows.lookup is not None and not joined:
            fix = f"Join it with the rows of a table: FROM t JOIN {node.name} FOR SYSTEM_TIME AS OF PROCTIME() ON ...; to read it alone land it as a source."
            raise unsayable(self.text, node, "a lookup table without rows that look in it", fix)
        if node.args.get("version") is not None and not joined:
            raise unsayable(
                self.text,
                node,
                "FOR SYSTEM_TIME AS OF without a join",
                "Read the table as it is; an older state is read by floodmark fork.",
            )
        if node.args.get("db") is not None or rows is None:
            name = ".".join(part.name for part in node.parts)
            fix = f"{closest(name, tables)}Tables: {', '.join(tables)}."
            raise DefinitionError(
                self.text.at(node),
                "a source, an operator's output or a name of WITH",
                f"'{name}'",
                fix,
                code="DEFINITION-394",
            )
        return rows.with_columns(self.text, node.args.get("alias")).renamed(_alias(node) or node.name)


def _divided(conditions: list[exp.Expr], tables: list[str]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions that name columns of these tables alone, and those that name others, or columns without their table."""
    known = {table.lower() for table in tables}
    own = [
        condition
        for condition in conditions
        if all(column.parts[0].name.lower() in known for column in condition.find_all(exp.Column))
    ]
    return own, [condition for condition in conditions if condition not in own]


def _alias(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return str(alias.name) if alias is not None and alias.this is not None else ""


def _listed(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return [part for part in value if isinstance(part, exp.Expr)]
    return [value] if isinstance(value, exp.Expr) else []
