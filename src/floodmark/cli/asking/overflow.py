"""Whether numbers of a statement may get too large for their type. The engine's plan goes on with another number then, where Spark stops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from floodmark.core.types import parse
from floodmark.engines.embedded.bounded.query import Table, query
from floodmark.lake.table import entries, ranges

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.session import Sail

_INT, _BIGINT, _DECIMAL = 1 << 31, 1 << 63, 10**38
"""The least numbers that int, bigint and the digits of a decimal do not hold."""


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
    parts = (part for node in (*products, *sums, *totals) for child in node.iter_expressions() for part in child.walk())
    if any(isinstance(part, exp.Func) and not isinstance(part, exp.AggFunc) for part in parts):
        return True  # of what a function makes no table knows the largest
    literals = [Decimal(node.this) for node in tree.find_all(exp.Literal) if not node.is_string and _is_number(node)]
    known = _Largest(literals, _named(tree))
    for table in tables.values():
        known.add(table)

    def beyond(most: int, limit: int, scale: int = 0) -> bool:
        bound: int = (most * 10**scale) ** (1 + len(products)) * 2 ** len(sums)
        return bound * (known.rows if totals else 1) >= limit

    if known.narrow and (products or sums) and beyond(known.whole, _INT):
        return True
    if beyond(known.whole, _BIGINT):
        return True
    if not known.decimals or not beyond(known.any_number(), _DECIMAL, known.scale):
        return False
    return beyond(known.any_number(sail), _DECIMAL, known.scale)


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
        self.rows, self.narrow, self.decimals = 1, False, False
        self.wide: list[tuple[Table, list[str], int]] = []
        """Decimals of many digits: table, columns, the largest that their types hold."""

    def add(self, table: Table) -> None:
        """Take the columns of a table, too."""
        kinds = {name: parse(kind) for name, kind in table.schema.types.items()}
        kinds = {name: kind for name, kind in kinds.items() if self.names is None or name.lower() in self.names}
        whole = [name for name, kind in kinds.items() if kind.is_integer]
        exact = {name: kind for name, kind in kinds.items() if kind.is_decimal}
        wide = [name for name, kind in exact.items() if kind.precision > ranges.EXACT_DIGITS]
        few = [name for name in exact if name not in wide]
        self.narrow |= any(table.schema.types[name] != "bigint" for name in whole)
        self.decimals |= bool(exact)
        self.scale = max([self.scale, *(kind.scale for kind in exact.values())])
        if not entries.is_table(table.path):
            return
        if wide:
            self.wide.append((table, wide, max(10 ** (exact[name].precision - exact[name].scale) for name in wide)))
        rows, largest = ranges.largest(table.path, whole)
        self.rows, self.whole = self.rows * max(rows, 1), max(self.whole, largest)
        self.decimal = max(self.decimal, ranges.largest(table.path, few)[1]) if few else self.decimal

    def any_number(self, sail: Sail | None = None) -> int:
        """The largest of all columns; that of decimals of many digits by their types, or by their values if an engine is there."""
        wide = (most if sail is None else _asked(sail, table, names) for table, names, most in self.wide)
        return max(self.whole, self.decimal, *wide)


def _asked(sail: Sail, table: Table, names: Sequence[str]) -> int:
    """The largest number of some columns of a table."""
    columns = ", ".join(f"max(`{name}`) AS `{name}`, -min(`{name}`) AS `{name}_`" for name in names)
    (row,) = query(sail, f"SELECT {columns} FROM numbers", {"numbers": table}).to_pylist()
    return max((math.ceil(number) for number in row.values() if number is not None), default=1)


def _named(tree: exp.Expr) -> frozenset[str] | None:
    """The columns that a statement names; None for all."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    return frozenset(column.name.lower() for column in tree.find_all(exp.Column))


def _is_number(node: exp.Literal) -> bool:
    text: str = node.this
    return text.replace(".", "", 1).isdecimal()
