"""Connected components of a graph that grows: edges come as a stream, and each vertex whose component changes leaves as a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import form
from floodmark.spec.graph.steps import OnError, Order
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.keyed.process import Context, ProcessFunction, Row
from floodmark.spec.keyed.state import MapState
from floodmark.spec.rows.contract import Contract

_WHOLE = ("tinyint", "smallint", "int", "bigint")


class _Text(Contract):
    """The component of a vertex, both texts."""

    vertex: str
    component: str


class _Number(Contract):
    """The component of a vertex, both numbers."""

    vertex: int
    component: int


class _Joining(ProcessFunction):
    """Union of components by size: the vertices of the smaller one take the name of the larger one. The vertices of a component are a ring.

    Args:
        source: column of one end of an edge.
        target: of the other end.
    """

    component: MapState
    """Vertex -> its component, which is one of its vertices."""
    following: MapState
    """Vertex -> the next one in the ring."""
    size: MapState
    """Component -> number of its vertices."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"source": form(self.source), "target": form(self.target)}
        return {"name": "components", "settings": about, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:  # noqa: ARG002 - the protocol's
        """The vertices whose component an edge has changed."""
        ends = dict.fromkeys((row[self.source], row[self.target]))
        if None in ends:
            msg = f"an edge has an end that is null, {self.source}={row[self.source]!r}, {self.target}={row[self.target]!r}: filter it, or set it aside by on_error"
            raise ValueError(msg)
        changed = {vertex: self._begun(vertex) for vertex in ends if vertex not in self.component}
        first, *others = sorted({self.component.get(vertex) for vertex in ends}, key=self._rank)
        for other in others:
            changed |= self._joined(first, other)
        for vertex, component in changed.items():
            yield {"vertex": vertex, "component": component}

    def _rank(self, component: Any) -> tuple[int, Any]:
        """The larger component first, of two equal ones the one with the lesser name."""
        return -self.size.get(component), component

    def _begun(self, vertex: Any) -> Any:
        self.component.put(vertex, vertex)
        self.following.put(vertex, vertex)
        self.size.put(vertex, 1)
        return vertex

    def _joined(self, larger: Any, smaller: Any) -> dict[Any, Any]:
        """Make two components one; the vertices that have another component now."""
        changed, vertex = {smaller: larger}, self.following.get(smaller)
        while vertex != smaller:
            changed[vertex] = larger
            vertex = self.following.get(vertex)
        for vertex in changed:
            self.component.put(vertex, larger)
        behind = self.following.get(larger)
        self.following.put(larger, self.following.get(smaller))
        self.following.put(smaller, behind)
        self.size.put(larger, self.size.get(larger) + self.size.get(smaller))
        self.size.remove(smaller)
        return changed


class _JoiningTexts(_Joining):
    component, following, size = MapState(str, str), MapState(str, str), MapState(str, int)


class _JoiningNumbers(_Joining):
    component, following, size = MapState(int, int), MapState(int, int), MapState(int, int)


def growing_components(
    edges: Stream[Any] | KeyedStream,
    source: str,
    target: str,
    *,
    uid: str | None = None,
    order: Order | None = None,
    on_error: OnError = "stop",
) -> Stream[Any]:
    """The vertices whose component each edge changes: the last row of a vertex has its component.

    Example: ``growing_components(links, "page", "leads_to")``; of several graphs ``growing_components(links.key_by("site"), "page", "leads_to")``

    Args:
        edges: rows with both ends of an edge, in whichever direction. Edges are added and never removed. A keyed stream is a graph per key.
        source: column of one end: texts or whole numbers.
        target: of the other, of the same kind.
        uid: names the state of this step; by default the operator's name.
        order: of the edges, as of ``KeyedStream.process``.
        on_error: what an edge with an end that is null does: ``"stop"`` ends the run, ``"quarantine"`` sets it aside.

    Shape: the keys, ``vertex``, ``component``. A component has the name of one of its vertices: where an edge joins two, the vertices of the smaller one
        take the name of the larger one, of two equal ones the lesser name. So a vertex is renamed as often as the logarithm of the number of vertices.
    State: three entries per vertex, for ever; those of a key are read and written in each micro-batch that has an edge of it.
    Time: rows have the stamps of their edge. Names depend on the order of edges, parts do not.
    Source: union by size (Galler and Fischer).

    Raises:
        DefinitionError: DEFINITION-369, the ends are not of one kind; those of ``KeyedStream.process``.
    """
    keyed = edges if isinstance(edges, KeyedStream) else KeyedStream(edges, ())
    types, where = keyed.stream.schema.types, keyed.stream.at_step("components")
    kinds = [types.get(name, "") for name in (source, target)]
    if not (kinds == ["string", "string"] or set(kinds) <= {*_WHOLE}):
        got = ", ".join(f"{name} {kind or 'no column'}" for name, kind in zip((source, target), kinds, strict=True))
        fix = f"Make both whole numbers or both texts, with_columns(...). Columns: {keyed.stream.schema.describe()}."
        raise DefinitionError(where, "ends of one kind: numbers or texts", got, fix, code="DEFINITION-369")
    if kinds[0] == "string":
        return keyed.process(_JoiningTexts(source, target), _Text, uid=uid, order=order, on_error=on_error)
    return keyed.process(_JoiningNumbers(source, target), _Number, uid=uid, order=order, on_error=on_error)
