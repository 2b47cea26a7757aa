"""Contracts: pydantic models that define what a row is. A contract becomes a schema."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from floodmark.core import types as types_of
from floodmark.core.errors import DefinitionError, closest
from floodmark.core.time import zone
from floodmark.spec.rows.criteria import check_landed
from floodmark.spec.rows.expectation import Expectation, distinct
from floodmark.spec.values.annotations import IsRescued
from floodmark.spec.values.builder import check_names
from floodmark.spec.values.schema import Column, Schema


@dataclass(frozen=True, slots=True)
class _IsEventTime:
    pass


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _bounds(schema: Any) -> dict[str, Any]:
    """The bounds of the time within a schema of pydantic's, by their names: ``ge``, ``gt``, ``le``, ``lt``."""
    inner: dict[str, Any] = dict(schema)
    while "schema" in inner:
        inner = dict(inner["schema"])
    return {name: inner[name] for name in ("ge", "gt", "le", "lt") if name in inner}


EventTime = Annotated[datetime, _IsEventTime(), AfterValidator(_as_utc)]
"""The instant a row is about. Without an offset it is UTC; ``Annotated[EventTime, LocalTime("...")]`` says otherwise."""


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A timestamp written without offset in the local time of a zone, made UTC when the row lands.

    Args:
        timezone: IANA name.
        ambiguous: what to do with the hour that exists twice when clocks go back: ``"quarantine"`` (the default: no guess),
            ``"earlier"`` or ``"later"``. A time that does not exist (clocks going forward) always breaks the contract.
    """

    timezone: str
    ambiguous: Literal["quarantine", "earlier", "later"] = "quarantine"

    def __post_init__(self) -> None:
        zone(self.timezone, "LocalTime")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        local: CoreSchema = core_schema.no_info_after_validator_function(self.localise, core_schema.datetime_schema())
        before = handler(source)
        if bounds := _bounds(before):  # of Field(ge=...) behind the annotation, which pydantic applies within it
            local = core_schema.chain_schema([local, core_schema.datetime_schema(**bounds)])
        # replaces the conversion to UTC; a TimeFormat, if there is one, still parses the text first
        return {**before, "schema": local} if before["type"] == "function-before" else local

    def localise(self, value: datetime) -> datetime:
        """The UTC instant; an offset in the text wins. ValueError for a time that does not exist or exists twice."""
        if value.tzinfo is not None:
            return value.astimezone(UTC)
        local = zone(self.timezone)
        earlier, later = value.replace(tzinfo=local, fold=0), value.replace(tzinfo=local, fold=1)
        if earlier.utcoffset() == later.utcoffset():
            return earlier.astimezone(UTC)
        first, second = earlier.astimezone(UTC), later.astimezone(UTC)
        if first.astimezone(local).replace(tzinfo=None, fold=0) != value.replace(fold=0):
            msg = f"{value.isoformat(' ', 'minutes')} does not exist in {self.timezone} (clocks go forward over it)"
            raise ValueError(msg)
        if self.ambiguous == "quarantine":
            msg = (
                f"{value.isoformat(' ', 'minutes')} exists twice in {self.timezone} ({first:%H:%M}Z and {second:%H:%M}Z); "
                'say LocalTime(..., ambiguous="earlier") or "later"'
            )
            raise ValueError(msg)
        return second if self.ambiguous == "later" else first


class Contract(BaseModel):
    """What one row is: field types, nullability (``| None``), allowed values (``Literal``, ``Field(ge=...)``, validators).

    Class arguments:
        key: names of the fields that identify a row; documentation and joins.
        event_time: ``"field"`` (default: the one field typed ``EventTime``) or ``"ingestion"``: the moment of landing.
        expectations: of the rows together, which no single row breaks: a mean, a count, a share; beside what fields and key imply.
        extra: fields the contract does not name. Where it is not written they are left out, and each landing says which; ``"ignore"``
            leaves them out without a word, ``"forbid"`` sets the row aside. A field typed ``Rescued`` keeps them.

    Fields of fields: a pydantic model is a struct (``user.address.city``), ``list[...]`` an array (``tags[0]``), ``dict[str, ...]`` a
    map (``labels['a']``), ``JsonText`` any JSON value as text.

    Example:
        >>> class Flight(Contract, key=("carrier", "flight", "scheduled")):
        ...     scheduled: EventTime
        ...     carrier: str
        ...     flight: int
        ...     dep_delay: int | None = None
        >>> schema(Flight).names
        ('scheduled', 'carrier', 'flight', 'dep_delay')

    Raises:
        DefinitionError: DEFINITION-010..013; DEFINITION-291 to 293, an expectation with ``on_fail`` that a landing cannot judge before it commits; when the class is defined.
    """

    model_config = ConfigDict(frozen=True)
    floodmark_key: ClassVar[tuple[str, ...]] = ()
    floodmark_ingestion_time: ClassVar[bool] = False
    floodmark_expectations: ClassVar[tuple[Expectation, ...]] = ()

    def __init_subclass__(cls, **_: Any) -> None:
        super().__init_subclass__()  # the class arguments are read below, once the fields are known

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        key: tuple[str, ...] | str = (),
        event_time: Literal["field", "ingestion"] = "field",
        expectations: tuple[Expectation, ...] = (),
        **kwargs: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.floodmark_key = (key,) if isinstance(key, str) else tuple(key)
        cls.floodmark_ingestion_time = event_time == "ingestion"
        cls.floodmark_expectations = tuple(expectations)
        if (rescued := rescued_field(cls)) is not None:
            cls.model_config = {**cls.model_config, "extra": "allow"}
            cls.model_fields[rescued].default = None
            cls.model_rebuild(force=True)
        columns = schema(cls)
        for name in cls.floodmark_key:
            if name not in columns:
                where, fix = (
                    f"contract '{cls.__name__}'",
                    closest(name, columns.names) + f"Fields: {columns.describe()}.",
                )
                raise DefinitionError(where, "a key made of its fields", repr(name), fix, code="DEFINITION-010")
        event_time_field(cls)
        for expectation in cls.floodmark_expectations:
            check_landed(expectation, columns, f"contract '{cls.__name__}'")


def schema(contract: type[Contract]) -> Schema:
    """The columns of a contract, in the order of its fields."""
    columns = []
    hidden = [name for name in contract.__private_attributes__ if name in inspect.get_annotations(contract)]
    for name in hidden:  # pydantic makes them no fields
        fix = "Rename the field; names that begin with an underscore are floodmark's. The source's name is its alias: Field(alias=...)."
        raise DefinitionError(f"contract '{contract.__name__}'", "field names", name, fix, code="DEFINITION-013")
    for name, field in contract.model_fields.items():
        kind, nullable = _sql_type(field.annotation, field, f"contract '{contract.__name__}', field '{name}'")
        columns.append(Column(name=name, type=kind, nullable=nullable, description=field.description or ""))
    row_schema = Schema(tuple(columns))
    check_names(row_schema, f"contract '{contract.__name__}'")
    return row_schema


def event_time_field(contract: type[Contract]) -> str | None:
    """The name of the field typed ``EventTime``; None when there is none.

    Raises:
        DefinitionError: DEFINITION-012, more than one.
    """
    names = _marked_fields(contract, _IsEventTime)
    if len(names) > 1:
        fix = "Keep EventTime on the one that decides windows and lateness; type the others datetime."
        where = f"contract '{contract.__name__}'"
        raise DefinitionError(where, "one EventTime field", ", ".join(names), fix, code="DEFINITION-012")
    return names[0] if names else None


def _marked_fields(contract: type[Contract], mark: type) -> list[str]:
    """Names of the fields whose annotation has metadata of the type ``mark``."""
    return [name for name, field in contract.model_fields.items() if any(isinstance(m, mark) for m in field.metadata)]


def has_annotation(field: FieldInfo, kind: type) -> bool:
    """Whether an annotation of a type stands at a field, or at its type beside None."""
    parts = [argument for argument in typing.get_args(field.annotation) if typing.get_origin(argument) is Annotated]
    inner = [mark for part in parts for mark in typing.get_args(part)[1:]]
    return any(isinstance(mark, kind) for mark in [*field.metadata, *inner])


def rescued_field(contract: type[Contract]) -> str | None:
    """The name of the field typed ``Rescued``; None when there is none.

    Raises:
        DefinitionError: DEFINITION-151, more than one.
    """
    names = _marked_fields(contract, IsRescued)
    if len(names) > 1:
        where, fix = f"contract '{contract.__name__}'", f"Keep '{names[0]}', remove the others."
        raise DefinitionError(where, "one Rescued field", ", ".join(names), fix, code="DEFINITION-151")
    return names[0] if names else None


def tells_unknown(model: type[BaseModel]) -> bool:
    """Whether a landing lists the unknown fields it leaves out: the model does not set ``extra``."""
    return "extra" not in model.model_config


def takes_unknown(contract: type[Contract]) -> bool:
    """Whether unknown fields are read with a row: they are rescued, or the row is quarantined."""
    return contract.model_config.get("extra") in {"allow", "forbid"}


def inputs_of(contract: type[Contract]) -> dict[str, FieldInfo]:
    """Name in the source -> field. The name is the field's alias if it has one; a ``Rescued`` field is left out."""
    fields, rescued = {}, rescued_field(contract)
    for name, field in contract.model_fields.items():
        if name != rescued:
            alias = field.validation_alias
            fields[alias if isinstance(alias, str) else name] = field
    return fields


def expectations(contract: type[Contract]) -> tuple[Expectation, ...]:
    """The expectations a contract declares, then those that its fields and its key imply."""
    declared_and_implied = [*contract.floodmark_expectations]
    for name, field in contract.model_fields.items():
        declared_and_implied += _expectations(name, field)
    if contract.floodmark_key:
        keys = list(contract.floodmark_key)
        kind = "compound_columns_to_be_unique" if len(keys) > 1 else "column_values_to_be_unique"
        declared_and_implied.append(
            Expectation(kind, **({"column_list": keys} if len(keys) > 1 else {"column": keys[0]}))
        )
    return distinct(tuple(declared_and_implied))


def _expectations(name: str, field: FieldInfo) -> Iterator[Expectation]:
    if type(None) not in typing.get_args(field.annotation):
        yield Expectation("column_values_to_not_be_null", column=name)
    if allowed := [value for value in allowed_values(field.annotation) if value is not None]:
        yield Expectation("column_values_to_be_in_set", column=name, value_set=allowed)
    limits: dict[str, Any] = {}
    for rule in field.metadata:
        for limit, key in (("ge", "min_value"), ("gt", "min_value"), ("le", "max_value"), ("lt", "max_value")):
            bound = getattr(rule, limit, None)
            if isinstance(bound, int | float):
                limits |= {key: bound} | ({f"strict_{key[:3]}": True} if limit in {"gt", "lt"} else {})
    if limits:
        yield Expectation("column_values_to_be_between", column=name, **limits)


def allowed_values(annotation: Any) -> Sequence[object]:
    """The values that a ``Literal`` or ``Enum`` in an annotation allows; empty if every value is allowed."""
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return typing.get_args(annotation)
    if origin is Annotated:
        return allowed_values(typing.get_args(annotation)[0])
    if origin in {typing.Union, types.UnionType}:
        return [value for argument in typing.get_args(annotation) for value in allowed_values(argument)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [member.value for member in annotation]
    return ()


def type_of(annotation: object) -> str | None:
    """The Spark SQL type of a Python type a field may have; None for any other."""
    try:
        return _sql_type(annotation, FieldInfo(), "type")[0]
    except DefinitionError:
        return None


def _single(annotation: object, field: FieldInfo) -> types_of.Type | None:
    """The type of a scalar annotation; a ``Decimal`` has the digits of ``Field(max_digits=..., decimal_places=...)``."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return types_of.Type("string")
    if annotation is not Decimal:
        return types_of.of_python(annotation)
    digits = {a: getattr(m, a) for m in field.metadata for a in ("max_digits", "decimal_places") if hasattr(m, a)}
    return types_of.known(
        f"decimal({digits.get('max_digits') or types_of.MAX_DIGITS},{digits.get('decimal_places') or 0})"
    )


def _sql_type(annotation: Any, field: FieldInfo, where: str) -> tuple[str, bool]:
    """Spark SQL type and nullability of a field's annotation; parts of arrays, maps and structs may always be null."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        own = FieldInfo.from_annotation(annotation)
        own.metadata = [*own.metadata, *field.metadata]
        return _sql_type(own.annotation, own, where)
    if origin in {typing.Union, types.UnionType}:
        arguments = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(arguments) == 1:
            return _sql_type(arguments[0], field, where)[0], True
    elif origin is Literal:
        kinds = {type(a) for a in typing.get_args(annotation)}
        if len(kinds) == 1 and kinds <= {str, int, bool}:
            return str(types_of.of_python(kinds.pop())), False
    elif kind := _made(annotation, field, where) or _single(annotation, field):
        return str(kind), False
    expected = (
        "str, int, float, bool, date, datetime, Decimal, bytes, Literal, Enum, a pydantic model, list[...], dict[str, ...], JsonText "
        "or one of these | None"
    )
    fix = "Use one of these types; JsonText takes any JSON value as text, for get_json_object(...) in an operator."
    raise DefinitionError(where, expected, _spelled(annotation), fix, code="DEFINITION-011")


def _made(annotation: Any, field: FieldInfo, where: str) -> str | None:
    """The type of an array, map or struct annotation; None for any other annotation."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {list, tuple} and arguments:
        return f"array<{_sql_type(arguments[0], field, where)[0]}>"
    if origin in {dict, Mapping} and arguments:
        key, value = (_sql_type(argument, field, where)[0] for argument in arguments)
        return f"map<{key},{value}>"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation.model_fields:
        return _struct(annotation, where)
    return None


def _struct(model: type[BaseModel], where: str) -> str:
    """The type of a nested model."""
    kinds = {n: _sql_type(f.annotation, f, f"{where}, field '{n}'")[0] for n, f in model.model_fields.items()}
    names = Schema(tuple(Column(name=name, type=kind) for name, kind in kinds.items()))
    check_names(names, where)
    inner = tuple(types_of.parse(kind) for kind in kinds.values())
    return str(types_of.Type("struct", inner=inner, names=tuple(kinds)))


def _spelled(annotation: object) -> str:
    """A type as its author has written it."""
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else repr(annotation)
