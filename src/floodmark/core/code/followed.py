"""The code that a version covers, for people: the user's functions, classes, constants and modules, and packages by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from floodmark.core.code.origin import package_versions
from floodmark.core.code.reach import Reach
from floodmark.core.code.text import Kind, Part


@dataclass(frozen=True)
class Followed:
    """The code that functions reach.

    Args:
        parts: in the order of the walk. Parts of kind ``unknown`` could not be followed; their ``place`` states how they count.
        libraries: names used from libraries: ``math.floor``.
    """

    parts: tuple[Part, ...]
    libraries: tuple[str, ...]

    @staticmethod
    def of(functions: Iterable[Any]) -> Followed:
        """The code that several functions, classes or instances reach together."""
        parts: dict[tuple[Kind, str], Part] = {}
        libraries: dict[str, None] = {}
        for function in functions:
            reach = Reach().of(function)
            parts = {**reach.parts, **parts}
            libraries |= reach.libraries
        return Followed(tuple(parts.values()), tuple(libraries))

    @property
    def digests(self) -> dict[str, str]:
        """{``kind name`` of a part: digest of its own text}."""
        return {f"{part.kind} {part.name}": part.digest for part in self.parts}

    @cached_property
    def packages(self) -> dict[str, str]:
        """{distribution: version} of the installed packages that the code uses."""
        return package_versions({name.split(".")[0] for name in self.libraries})
