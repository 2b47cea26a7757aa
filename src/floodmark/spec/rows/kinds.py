"""Types of the state of process functions: the check of a value, and which types may be read as wider ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from floodmark.core.errors import DefinitionError, UserCodeError
from floodmark.core.types import Type, known
from floodmark.spec.rows.contract import Contract, type_of
from floodmark.spec.rows.contract import schema as contract_schema


def unfit(where: str, kind: str, value: object) -> UserCodeError:
    """USER-005: a value that is not of its state's type."""
    fix = "Keep a value of the declared type, or declare another type."
    return UserCodeError(where, f"a value of type {kind}", f"{type(value).__name__} {value!r}", fix, code="USER-005")


_UNFIT = object()


@cache
def _checker(text: str) -> Callable[[Any], Any] | None:
    """The check of a type: value -> the value as stored, or ``_UNFIT``. None for a type that state cannot have."""
    kind = known(text)
    return None if kind is None else _checks(kind)


def _checks(kind: Type) -> Callable[[Any], Any] | None:
    if kind.is_integer:
        low, high = kind.bounds or (0, 0)
        return lambda v: v if isinstance(v, int) and not isinstance(v, bool) and low <= v <= high else _UNFIT
    if kind.is_floating:
        return lambda v: float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else _UNFIT
    if kind.is_decimal:
        return lambda v: v if isinstance(v, Decimal) and _decimal_fits(v, kind.precision, kind.scale) else _UNFIT
    if kind.name == "array":
        inner = _checks(kind.inner[0])
        return None if inner is None else lambda v: _each(v, inner)
    if kind.name == "map":
        key, item = (_checks(part) for part in kind.inner)
        return None if key is None or item is None else lambda v: _entries(v, key, item)
    if kind.name == "struct":
        fields = {name: _checks(part) for name, part in zip(kind.names, kind.inner, strict=True)}
        known_fields = {name: check for name, check in fields.items() if check is not None}
        return None if len(known_fields) < len(fields) else lambda v: _fields(v, known_fields)
    if not kind.is_column:
        return None
    wanted, day = kind.python, kind.python is date
    return lambda v: v if isinstance(v, wanted) and not (day and isinstance(v, datetime)) else _UNFIT


def _decimal_fits(value: Decimal, digits: int, scale: int) -> bool:
    if not value.is_finite():
        return False
    _, figures, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return -exponent <= scale and len(figures) + exponent <= digits - scale


def _each(value: Any, inner: Callable[[Any], Any]) -> Any:
    if not isinstance(value, (list, tuple)):
        return _UNFIT
    checked = [None if v is None else inner(v) for v in value]
    return _UNFIT if any(v is _UNFIT for v in checked) else checked


def _entries(value: Any, key: Callable[[Any], Any], item: Callable[[Any], Any]) -> Any:
    """A map, given as a mapping or as pairs (a row's column holds pairs)."""
    try:
        pairs = dict(value)
    except (TypeError, ValueError):
        return _UNFIT
    checked = {key(k): None if v is None else item(v) for k, v in pairs.items()}
    return _UNFIT if any(part is _UNFIT for pair in checked.items() for part in pair) else checked


def _fields(value: Any, fields: Mapping[str, Callable[[Any], Any]]) -> Any:
    """A struct; every field of it may be null."""
    if not isinstance(value, Mapping):
        return _UNFIT
    checked = {name: None if value.get(name) is None else check(value[name]) for name, check in fields.items()}
    return _UNFIT if any(part is _UNFIT for part in checked.values()) else checked


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a state's values: a Spark SQL type, or the columns of a row.

    Args:
        text: the type; ``row<a bigint, b string>`` for rows; any other word for values that are not checked.
        columns: of a row: (name, type, nullable); None for a single value.
    """

    text: str
    columns: tuple[tuple[str, str, bool], ...] | None = None

    @staticmethod
    def of(declared: object, where: str) -> Kind:
        """(Python type, Spark SQL type, contract or ``Kind``, as the user wrote it) -> its kind.

        Raises:
            DefinitionError: DEFINITION-120, none of these.
        """
        if isinstance(declared, Kind):
            return declared
        if isinstance(declared, type) and issubclass(declared, Contract):
            row_schema = contract_schema(declared)
            columns = tuple((c.name, c.type, c.nullable) for c in row_schema.columns)
            return Kind(f"row<{row_schema.describe()}>", columns)
        text = str(known(declared) or "") if isinstance(declared, str) else type_of(declared)
        if not text or _checker(text) is None:
            fix = (
                'For example ValueState(float), ListState("timestamp"), MapState(str, int) or ValueState(SomeContract).'
            )
            raise DefinitionError(where, "a type", repr(declared), fix, code="DEFINITION-120")
        return Kind(text)

    def canonical(self) -> str:
        """The type."""
        return self.text

    def checked(self, value: Any, where: str) -> Any:
        """The value as stored: converted to the type.

        Raises:
            UserCodeError: USER-005, the value is not of the type.
        """
        if self.columns is None:
            check = _checker(self.text)
            converted = value if check is None else check(value)
            if converted is _UNFIT or value is None:
                raise unfit(where, self.text, value)
            return converted
        if not isinstance(value, Mapping):
            raise unfit(where, self.text, value)
        row = {}
        for name, kind, nullable in self.columns:
            item = value.get(name)
            check = _checker(kind)
            assert check is not None
            row[name] = None if item is None and nullable else _UNFIT if item is None else check(item)
            if row[name] is _UNFIT:
                raise unfit(f"{where}, column '{name}'", kind, item)
        return row


def widened(before: str, after: str) -> Callable[[Any], Any] | None:
    """(stored type, declared type) -> conversion of a stored value; None if the declared type is not as wide or wider."""
    if before == after:
        return lambda value: value
    old, new = known(before), known(after)
    if old is None or new is None or not old.widens_to(new):
        return None
    return float if new.is_floating else lambda value: value
