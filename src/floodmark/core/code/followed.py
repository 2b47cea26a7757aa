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
        parts: in the order in which they are met; those of kind ``unknown`` could not be followed, and say how they count.
        libraries: names of libraries that are used.
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
        """Each part by kind and name, and the digest of its own text."""
        return {f"{part.kind} {part.name}": part.digest for part in self.parts}

    @cached_property
    def packages(self) -> dict[str, str]:
        """Installed packages that are used, and the release of each."""
        return package_versions({name.split(".")[0] for name in self.libraries})
