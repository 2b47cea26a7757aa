"""Checks shared by many declarations: converters and validators of fields, and settings of methods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, get_args

from attrs import Attribute, Converter

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.spec.rows.contract import Contract, schema
from floodmark.spec.values.schema import Schema

_FEW = 2
"""Up to so many words of a ``Literal`` are quoted each, joined by "or"; more are listed."""


def converting(_: type, settings: list[Attribute[Any]]) -> list[Attribute[Any]]:
    """Field transformer of attrs: converters are called with (value, declaration, field), so that their errors name declaration and field.

    Mypy takes the type of an argument from the first parameter of a converter that is a function, and no other one: the second and the
    third parameter have defaults.
    """
    return [
        setting if setting.converter is None else setting.evolve(converter=_telling(setting.converter))
        for setting in settings
    ]


def _telling(converter: Any) -> Converter[Any, Any]:
    return Converter(converter, takes_self=True, takes_field=True)


def written(default: str) -> Any:
    """A field's default as users write it, before conversion: ``"1 day"`` for a field in ms. Typed ``Any`` for mypy."""
    return default


def one_of(kind: Any, value: object, name: str, where: str) -> None:
    """Make sure that a setting is one of the words of a ``Literal``.

    Raises:
        DefinitionError: DEFINITION-055.
    """
    words = get_args(kind)
    if value not in words:
        listed = " or ".join(f'"{word}"' for word in words) if len(words) <= _FEW else f"one of {', '.join(words)}"
        fix = f"{name} is {listed}."
        raise DefinitionError(where, "valid settings", repr(value), fix, code="DEFINITION-055")


def unfit_setting(where: str, got: str, fix: str) -> DefinitionError:
    """DEFINITION-055: a setting that is not valid, alone or together with another."""
    return DefinitionError(where, "valid settings", got, fix, code="DEFINITION-055")


def is_contract(candidate: object) -> bool:
    """Whether something is a class derived from ``Contract``."""
    return isinstance(candidate, type) and issubclass(candidate, Contract)


def columns_of(contract: type[Contract], where: str, fix: str) -> Schema:
    """(contract of the rows a function yields) -> their columns.

    Raises:
        DefinitionError: DEFINITION-051, not a contract.
    """
    if not is_contract(contract):
        raise DefinitionError(where, "the contract of its rows", repr(contract), fix, code="DEFINITION-051")
    return schema(contract)


def new_columns(names: Iterable[str], where: str, expected: str, fix: str) -> None:
    """Raise if there are any ``names``: columns that are taken already, or may not be named so.

    Raises:
        DefinitionError: DEFINITION-050.
    """
    if taken := ", ".join(names):
        raise DefinitionError(where, expected, taken, fix, code="DEFINITION-050")


def not_negative(value: str | timedelta, where: str) -> int:
    """A duration in ms.

    Raises:
        DefinitionError: DEFINITION-004, it is less than zero; DEFINITION-001, it is no duration.
    """
    milliseconds = span(value, where)
    if milliseconds < 0:
        got = describe_span(milliseconds)
        raise DefinitionError(where, "zero or more", got, "Write the duration without a minus.", code="DEFINITION-004")
    return milliseconds
