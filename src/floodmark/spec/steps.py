"""The nodes of an operator's graph. Frozen; each knows its output schema and its canonical form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.core.fingerprint import source_of
from floodmark.spec.aggregates import AnyAggregate
from floodmark.spec.schema import Schema
from floodmark.spec.windows import Window, canonical_window

Late = Literal["drop", "side_output"]
RowFunction = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of one input."""

    input: str
    schema: Schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return ()

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"step": "read", "input": self.input, "schema": self.schema.canonical()}


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the condition is true."""

    parent: Step
    condition: str

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.parent.schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"step": "filter", "condition": self.condition, "of": self.parent.canonical()}


@dataclass(frozen=True, slots=True)
class Project:
    """New columns out of expressions: ``select`` (only these) and ``with_columns`` (these beside the others)."""

    parent: Step
    columns: tuple[tuple[str, str], ...]
    schema: Schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        columns = [[name, text, self.schema[name].type] for name, text in self.columns]
        return {"step": "project", "columns": columns, "of": self.parent.canonical()}


@dataclass(frozen=True, slots=True)
class FlatMap:
    """A Python function from a row to any number of rows."""

    parent: Step
    function: RowFunction = field(compare=False)
    schema: Schema
    code: str

    @staticmethod
    def of(parent: Step, function: RowFunction, schema: Schema) -> FlatMap:
        """With the function's source, by which it is compared."""
        return FlatMap(parent, function, schema, source_of(function))

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        schema = self.schema.canonical()
        return {"step": "flat_map", "code": self.code, "schema": schema, "of": self.parent.canonical()}


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of several streams of one schema."""

    parents: tuple[Step, ...]

    @property
    def schema(self) -> Schema:
        """That of each parent."""
        return self.parents[0].schema

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"step": "union", "of": [parent.canonical() for parent in self.parents]}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """Aggregates per key and window: the stateful step.

    Args:
        uid: names its state; stays the same while the step keeps its meaning.
        groups: number of key groups, the unit of redistribution.
    """

    parent: Step
    uid: str
    keys: tuple[str, ...]
    window: Window
    allowed_lateness: int
    late: Late
    aggregates: tuple[tuple[str, AnyAggregate], ...]
    schema: Schema
    groups: int = 64

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {
            "step": "window_aggregate",
            "uid": self.uid,
            "keys": list(self.keys),
            "window": canonical_window(self.window),
            "allowed_lateness": self.allowed_lateness,
            "late": self.late,
            "aggregates": [[name, aggregate.canonical()] for name, aggregate in self.aggregates],
            "groups": self.groups,
            "of": self.parent.canonical(),
        }


Step = Read | Filter | Project | FlatMap | Union | WindowAggregate


def walk(step: Step) -> Iterator[Step]:
    """The step and everything it reads, parents first; a step reached twice comes twice."""
    for parent in step.parents:
        yield from walk(parent)
    yield step
