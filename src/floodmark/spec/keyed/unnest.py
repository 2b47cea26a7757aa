"""The function of ``unnest``: a row for each element of an array, or each entry of a map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from floodmark.core.fingerprint import Declared, canonical


@frozen
class Unnest(Declared):
    """A row -> the row once for each element.

    Args:
        column: that holds the elements, which no result has.
        names: of the new columns: of the element, of its fields, or of key and value.
        fields: of an element that is a struct, in the order of ``names``; empty for other elements.
        pairs: the elements are the entries of a map.
        position: the column of the position of an element, from 1; empty for none.
        outer: a row without elements comes once, with nulls.
    """

    column: str
    names: tuple[str, ...]
    fields: tuple[str, ...] = ()
    pairs: bool = False
    position: str = ""
    outer: bool = False
    __name__ = "unnest"

    def text(self) -> str:
        """Name and settings, in place of its code in fingerprints."""
        return canonical({"unnest": self.canonical()})

    def __call__(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of a row."""
        value = row[self.column]
        items: Iterable[Any] = () if value is None else value.items() if isinstance(value, Mapping) else value
        others = {name: held for name, held in row.items() if name != self.column}
        number = 0
        for number, item in enumerate(items, 1):
            yield others | self._named(item) | ({self.position: number} if self.position else {})
        if not number and self.outer:
            yield others | dict.fromkeys((*self.names, *filter(None, (self.position,))))

    def _named(self, item: Any) -> dict[str, Any]:
        if self.pairs:
            return dict(zip(self.names, item, strict=True))
        if not self.fields:
            return {self.names[0]: item}
        return (
            dict.fromkeys(self.names)
            if item is None
            else {name: item[field] for name, field in zip(self.names, self.fields, strict=True)}
        )


@frozen
class Repeat(Declared):
    """A row -> the row once for each number from 0.

    Args:
        name: the column of the number.
        count: how many rows.
    """

    name: str
    count: int
    __name__ = "repeat"

    def text(self) -> str:
        """Name and settings, in place of its code in fingerprints."""
        return canonical({"repeat": self.canonical()})

    def __call__(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of a row."""
        for number in range(self.count):
            yield {**row, self.name: number}
