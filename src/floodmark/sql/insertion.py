"""``INSERT INTO name SELECT``: the SELECT of the operator of that name."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.sql.refusals import unsayable
from floodmark.sql.text import Text


def inserted(text: Text, tree: exp.Expr, name: str) -> tuple[exp.Expr, list[str]]:
    """(statement, name of its operator) -> the SELECT, and the names of the result's columns where INSERT gives them."""
    if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Query):
        return tree, []
    settings = {key for key, value in tree.args.items() if value} - {"this", "expression"}
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if (
        settings
        or not isinstance(target, exp.Table)
        or target.name.lower() != name
        or target.args.get("db") is not None
    ):
        fix = f"The result of this operator is the table {name}: write INSERT INTO {name} SELECT ..., or the SELECT alone."
        raise unsayable(text, tree, f"INSERT into {text.of(target) if target.meta.get('span') else target.name!r}", fix)
    columns = [column.name for column in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
    return tree.expression, columns


def named(text: Text, tree: exp.Expr, stream: Stream[Any], names: list[str]) -> Stream[Any]:
    """The result with the columns of ``INSERT INTO name (a, b)``."""
    have = stream.schema.names
    if len(names) != len(have) or len(set(names)) != len(names):
        fix = f"Name each column of the SELECT once; it has {', '.join(have)}."
        got = f"{len(names)} in INSERT: {', '.join(names)}"
        raise DefinitionError(text.at(tree), f"{len(have)} different names of columns", got, fix, code="DEFINITION-393")
    renamed: dict[str, Any] = {new: itself(old) for new, old in zip(names, have, strict=True)}
    return stream if tuple(names) == have else stream.select(**renamed)
