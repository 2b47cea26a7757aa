"""Whether numbers of a statement may get too large for their type. The engine's plan goes on with another number then, where Spark stops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from floodmark.core.types import parse
from floodmark.engines.embedded.bounded.query import Table, query
from floodmark.lake.table import entries, ranges

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.session import Sail

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
"""Type of whole numbers -> its digits without the sign."""
_DECIMAL = 10**38
"""The least number that the digits of a decimal do not hold."""
_UNKNOWN = (exp.Func, exp.BitwiseLeftShift, exp.BitwiseNot, exp.BitwiseOr, exp.BitwiseXor)
"""Of what these make no table knows the largest; but for aggregates and conditions."""
_MANY = (exp.UDTF, exp.Cube, exp.Rollup, exp.GroupingSets)
"""What makes more rows than the tables have together."""


def may_overflow(tree: exp.Expr, tables: Mapping[str, Table], sail: Sail) -> bool:
    """Whether whole numbers or decimals may get too large, judged by the largest in the tables.

    Args:
        tree: of the statement.
        tables: that it names.
        sail: is asked for the largest decimals of many digits, which no log says, where their type alone does not tell.
    """
    products, sums, totals = (
        list(tree.find_all(*kinds)) for kinds in ((exp.Mul,), (exp.Add, exp.Sub, exp.Neg, exp.Abs), (exp.Sum,))
    )
    if not (products or sums or totals):
        return False
    parts = [part for node in (*products, *sums, *totals) for child in node.iter_expressions() for part in child.walk()]
    names = frozenset(column.name.lower() for column in parts if isinstance(column, exp.Column))
    composed = _is_composed(tree, names, tables)
    if any(map(_is_unknown, parts)) or (composed and _has_unknown_columns(tree, names)):
        return True
    reads = Counter(table.name for table in tree.find_all(exp.Table))
    if totals and (tree.find(*_MANY) or any(times > 1 and name not in tables for name, times in reads.items())):
        return True
    literals = [Decimal(node.this) for node in tree.find_all(exp.Literal) if not node.is_string and _is_number(node)]
    known = _Largest(literals, _named(tree))
    for name, table in tables.items():
        known.add(name, table, reads[name])
    if known.nested:
        return True
    if tree.find(exp.Count):
        known.whole = max(known.whole, known.rows)
    depth = max((1 + sum(isinstance(over, exp.Sum) for over in _above(total)) for total in totals), default=0)
    factors = 2 ** len(products) if composed else 1 + len(products)
    growth = known.rows ** (len(totals) if composed else depth) * 2 ** len(sums)

    def beyond(most: int, limit: int, scale: int = 0) -> bool:
        bound: int = (most * 10**scale * growth) ** factors
        return bound >= limit

    if beyond(known.whole, 1 << (known.bits if products or sums else _BITS["bigint"])):
        return True
    if not known.decimals or not beyond(known.any_number(), _DECIMAL, known.scale):
        return False
    return beyond(known.any_number(sail), _DECIMAL, known.scale)


def _is_composed(tree: exp.Expr, names: frozenset[str], tables: Mapping[str, Table]) -> bool:
    """Whether arithmetic may be over columns that the statement itself computes, each as often as it likes."""
    columns = {name.lower() for table in tables.values() for name in table.schema.types}
    computed = {alias.alias.lower() for select in _inner(tree) for alias in select.expressions}
    renamed = any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias))
    return renamed or not names <= columns or bool(names & computed) or tree.find(exp.SetOperation) is not None


def _has_unknown_columns(tree: exp.Expr, names: frozenset[str]) -> bool:
    """Whether a subquery, or the column of one of these names, has a function."""
    columns = [column for select in _inner(tree) for column in select.expressions]
    columns += [alias for alias in tree.find_all(exp.Alias) if alias.alias.lower() in names]
    return any(_is_unknown(part) for column in columns for part in column.walk())


def _inner(tree: exp.Expr) -> list[exp.Select]:
    return [select for select in tree.find_all(exp.Select) if select is not tree]


def _is_unknown(part: exp.Expr) -> bool:
    return isinstance(part, _UNKNOWN) and not isinstance(part, (exp.AggFunc, exp.Connector))


def _above(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


class _Largest:
    """The largest numbers of some tables, whatever their signs.

    Args:
        literals: numbers of the statement.
        names: of columns, in lower case, that count; None for all.
    """

    def __init__(self, literals: Sequence[Decimal], names: frozenset[str] | None) -> None:
        self.names = names
        self.whole = max((int(number) for number in literals if number == int(number)), default=1)
        """Of columns of whole numbers."""
        self.decimal = max((math.ceil(number) for number in literals), default=1)
        """Of columns of decimals of few digits."""
        self.scale = max((-int(number.as_tuple().exponent) for number in literals), default=0)
        """Digits behind the point."""
        self.rows, self.bits = 1, _BITS["bigint"]
        self.decimals = self.nested = False
        self.wide: list[tuple[str, Table, list[str], int]] = []
        """Decimals of many digits: name of the table, the table, columns, the largest that their types hold."""

    def add(self, own: str, table: Table, times: int) -> None:
        """Take the columns of a table, too, which is joined or united with itself that often."""
        kinds = {name: parse(kind) for name, kind in table.schema.types.items()}
        kinds = {name: kind for name, kind in kinds.items() if self.names is None or name.lower() in self.names}
        whole = [name for name, kind in kinds.items() if kind.is_integer]
        exact = {name: kind for name, kind in kinds.items() if kind.is_decimal}
        wide = [name for name, kind in exact.items() if kind.precision > ranges.EXACT_DIGITS]
        few = [name for name in exact if name not in wide]
        self.bits = min([self.bits, *(_BITS[kinds[name].name] for name in whole)])
        self.nested |= any(bool(kind.inner) for kind in kinds.values())
        self.decimals |= bool(exact)
        self.scale = max([self.scale, *(kind.scale for kind in exact.values())])
        if not entries.is_table(table.path):
            return
        if wide:
            self.wide.append(
                (own, table, wide, max(10 ** (exact[name].precision - exact[name].scale) for name in wide))
            )
        rows, largest = ranges.largest(table.path, whole)
        self.rows, self.whole = self.rows * (rows + 1) ** times, max(self.whole, largest)
        self.decimal = max(self.decimal, ranges.largest(table.path, few)[1]) if few else self.decimal

    def any_number(self, sail: Sail | None = None) -> int:
        """The largest of all columns; that of decimals of many digits by their types, or by their values if an engine is there."""
        wide = (most if sail is None else _asked(sail, own, table, names) for own, table, names, most in self.wide)
        return max(self.whole, self.decimal, *wide)


def _asked(sail: Sail, own: str, table: Table, names: Sequence[str]) -> int:
    """The largest number of some columns of a table, which the statement reads by its own name."""
    columns = ", ".join(f"max(`{name}`) AS high_{n}, -min(`{name}`) AS low_{n}" for n, name in enumerate(names))
    (row,) = query(sail, f"SELECT {columns} FROM `{own}`", {own: table}).to_pylist()
    return max((math.ceil(number) for number in row.values() if number is not None), default=1)


def _named(tree: exp.Expr) -> frozenset[str] | None:
    """The columns that a statement names; None for all."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    if any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias)):
        return None
    return frozenset(part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts)


def _is_number(node: exp.Literal) -> bool:
    text: str = node.this
    return text.replace(".", "", 1).isdecimal()
