"""Base of the graph's builders: an unknown method is refused with the nearest name. And the check that column names are distinct."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn

from floodmark.core.errors import DefinitionError
from floodmark.spec.values.schema import Schema

_ELSEWHERE = {
    "where": "filter",
    "withColumn": "with_columns",
    "withColumns": "with_columns",
    "groupBy": "key_by",
    "group_by": "key_by",
    "flatMap": "flat_map",
    "unionByName": "union",
    "agg": "key_by(...).window(...).aggregate",
}
"""What Spark's or another library's users call a method -> its name here."""


class UnknownMethodError(DefinitionError, AttributeError):
    """A builder has no such method; an ``AttributeError``, so that ``hasattr``, ``copy`` and ``pickle`` work."""


class Builder:
    """Mixed into ``Stream``, ``KeyedStream`` and the others."""

    __slots__ = ()
    builds: ClassVar[str] = ""
    """The call that returns such a builder, for errors: ``.key_by("column")``."""

    if not TYPE_CHECKING:  # mypy reports methods that do not exist by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise unknown_method(type(self), name)


def unknown_method(builder: type[Builder], name: str) -> UnknownMethodError:
    """DEFINITION-147: the nearest method of this builder, or the builder that has the method."""
    methods = _methods(builder)
    near = difflib.get_close_matches(name, methods, n=1, cutoff=0.6)
    owners = [other for other in _builders() if name in _methods(other) and other.builds]
    hint = f"Did you mean '{near[0]}'?" if near else ""
    hint = f"It is called {_ELSEWHERE[name]} here." if name in _ELSEWHERE else hint
    hint = f"{name} belongs behind {owners[0].builds}." if owners else hint
    fix = f"{hint} {builder.__name__} has {', '.join(methods)}.".strip()
    return UnknownMethodError(builder.__name__, "one of its methods", repr(name), fix, code="DEFINITION-147")


def _methods(builder: type[Builder]) -> list[str]:
    fields = getattr(builder, "__dataclass_fields__", {})
    own = {"at_step", "schema", "builds", *fields}
    return [name for name in dir(builder) if not name.startswith("_") and name not in own]


def _builders() -> Iterable[type[Builder]]:
    waiting = [*Builder.__subclasses__()]
    while waiting:
        builder = waiting.pop(0)
        yield builder
        waiting += builder.__subclasses__()


def check_names(schema: Schema, where: str) -> None:
    """Refuse column names that differ in case alone: Spark and Delta ignore case in names.

    Raises:
        DefinitionError: DEFINITION-144.
    """
    if alike := _alike(schema.names):
        fix = "Rename one of them: Spark and Delta do not tell upper from lower case in names of columns."
        raise DefinitionError(where, "names that differ in more than case", alike, fix, code="DEFINITION-144")


def _alike(names: Iterable[str]) -> str:
    spellings: Mapping[str, list[str]] = defaultdict(list)
    for name in names:
        spellings[name.lower()].append(name)
    return ", ".join(" and ".join(same) for same in spellings.values() if len(same) > 1)
