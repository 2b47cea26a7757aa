"""Tagged unions: the rows of two streams as the single input of a stateful step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import DefinitionError
from floodmark.spec.graph import steps
from floodmark.spec.values.schema import TAG, Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream


def tagged(
    left: KeyedStream,
    right: Stream[Any],
    keys: Sequence[str],
    names: tuple[str, str],
    where: str,
    *,
    last: bool = False,
    broadcast: bool = False,
) -> tuple[steps.Step, tuple[steps.Port, ...]]:
    """The union of two streams, and its ports: keys, the tag, then the columns of each stream, null in the other stream's rows.

    Args:
        left: stream whose keys name the key columns of the union.
        right: the other stream.
        keys: key columns of ``right``, in the order of ``left``'s; none for a broadcast stream, and where all rows are of one key.
        names: of the two ports.
        where: for errors.
        last: ``left`` is the second port: its rows follow those of ``right`` if event times are equal.
        broadcast: every key receives the rows of ``right``.

    Raises:
        DefinitionError: DEFINITION-124, the keys do not go together.
    """
    shapes = left.stream.schema, right.schema
    if keys:
        types = [[shape[key].type for key in own] for shape, own in zip(shapes, (left.keys, keys), strict=True)]
        if types[0] != types[1]:
            got = [
                ", ".join(f"{k} {t}" for k, t in zip(own, kinds, strict=True))
                for own, kinds in zip((left.keys, keys), types, strict=True)
            ]
            fix = "key_by as many columns on both sides, of the same types; cast them with with_columns(...)."
            raise DefinitionError(where, "keys that go together", " and ".join(got), fix, code="DEFINITION-124")
    head = [replace(shapes[0][key], nullable=True) for key in left.keys]
    own = (dict(zip(left.keys, left.keys, strict=True)), dict(zip(keys, left.keys, strict=bool(keys))))
    ports, value_columns = [], []
    for tag, shape in enumerate(shapes):
        columns = {c.name: own[tag].get(c.name) or f"_{names[tag]}_{c.name}" for c in shape.columns}
        ports.append(steps.Port(names[tag], tuple(columns.items()), broadcast=broadcast and tag == 1))
        value_columns += [
            replace(c, name=columns[c.name], nullable=True) for c in shape.columns if c.name not in own[tag]
        ]
    schema = Schema((*head, Column(name=TAG, type="int", nullable=False), *value_columns))
    parts = []
    for tag, stream in enumerate((left.stream, right)):
        expressions = {target: f"`{name}`" for name, target in ports[tag].columns} | {
            TAG: str(1 - tag if last else tag)
        }
        texts = tuple((column.name, expressions.get(column.name, "NULL")) for column in schema.columns)
        parts.append(steps.Project(stream.step, texts, schema))
    return steps.Union(tuple(parts)), tuple(reversed(ports) if last else ports)
