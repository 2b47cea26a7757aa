"""Which numbers of rows a SELECT reads beside its joins: a number that nobody reads is not computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from floodmark.sql.relation import Ranked
from floodmark.sql.rows.tail import ORDERED

_LEFT_ALONE = {"SEMI", "ANTI"}


@dataclass(slots=True)
class Reads:
    """The columns that a SELECT reads, with those of its subqueries.

    Args:
        node: the SELECT.
        joins: its joins.
    """

    node: exp.Select
    joins: Sequence[exp.Join]
    columns: list[tuple[int, str, str]] = field(init=False)
    """(identity of the node, table or empty, name) of each column, in lower case."""
    using: set[str] = field(init=False)
    asked: bool = field(init=False)
    """Whether a subquery stands in its expressions or conditions."""

    def __post_init__(self) -> None:
        columns = [*self.node.find_all(exp.Column), *self.node.meta.get(ORDERED, ())]
        self.columns = [(id(column), column.table.lower(), column.name.lower()) for column in columns]
        self.using = {name.name.lower() for join in self.joins for name in join.args.get("using") or ()}
        parts = [self.node.args.get(name) for name in ("where", "having", "qualify")]
        asking = [*self.node.expressions, *(part for part in parts if part is not None)]
        self.asked = any(part.find(exp.Query) is not None for part in asking)

    def number(self, ranked: Ranked, source: exp.Expr, join: exp.Join | None = None) -> bool:
        """Whether a number is read.

        Args:
            ranked: the numbering.
            source: the table of FROM or of a join that has it; what stands within that does not count.
            join: the join of which it is the table; None for FROM.
        """
        name, table = ranked.name.lower(), ranked.table.lower()
        own = {id(column) for column in source.find_all(exp.Column)}
        if name in self.using or any(
            column not in own and ((at == name and of in {"", table}) or (at == "*" and of == table))
            for column, of, at in self.columns
        ):
            return True
        if join is not None and str(join.kind).upper() in _LEFT_ALONE:
            return False
        return any(self._shows(part, name) for part in self.node.expressions)

    def _shows(self, part: exp.Expr, name: str) -> bool:
        """Whether a column of SELECT is a star that has the number, or beside a join a star that has to leave it out."""
        if not isinstance(part, exp.Star):
            return False
        left_out = {str(each.name).lower() for key in ("except_", "exclude") for each in part.args.get(key) or ()}
        return bool(self.joins) or name not in left_out
