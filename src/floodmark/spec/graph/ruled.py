"""Rules by broadcast as a step: their key, when one ends, and the columns that they add to a row, checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import check
from floodmark.spec.graph import steps
from floodmark.spec.graph.tagged import tagged
from floodmark.spec.keyed.matching import DELETED
from floodmark.spec.keyed.process import Process
from floodmark.spec.keyed.rules import Ruling
from floodmark.spec.rows.checks import new_columns
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream


def with_rules(
    keyed: KeyedStream, rules: Stream[Any], key: str, deleted: str | None, prefix: str, uid: str | None
) -> Stream[Any]:
    """The stream of ``Connected.with_rules``."""
    where, schema = keyed.stream.at_step("with_rules"), keyed.stream.schema
    if key not in rules.schema:
        raise DefinitionError(
            f"{where}, key", "a column of the rules", repr(key), rules.schema.nearest(key), code="DEFINITION-022"
        )
    condition = deleted if deleted is not None else "false"
    check(condition, rules.schema, f"{where}, deleted", boolean=True)
    places = tuple((c.name, prefix + c.name if c.name in schema else c.name) for c in rules.schema.columns)
    names = [target for _, target in places]
    taken = [name for name in names if name in schema or names.count(name) > 1 or not name.isidentifier()]
    new_columns(taken, where, "new columns of the rules", 'Say prefix="rule_", or rename them before.')
    expressions = (*((name, f"`{name}`") for name in rules.schema.names), (DELETED, f"coalesce({condition}, false)"))
    marked = Schema((*rules.schema.columns, Column(name=DELETED, type="boolean", nullable=False)))
    other = replace(rules, step=steps.Project(rules.step, expressions, marked))
    parent, ports = tagged(keyed, other, (), ("element", "broadcast"), where, last=True, broadcast=True)
    own = [schema[name] for name in keyed.keys] + [c for c in schema.columns if c.name not in keyed.keys]
    added = [replace(rules.schema[name], name=target) for name, target in places]
    process: dict[str, Any] = {"function": Process(Ruling(key, places)), "ports": ports, "order": "event_time"}
    return keyed._then(uid, parent, Schema((*own, *added)), **process)  # noqa: SLF001 - its other half
