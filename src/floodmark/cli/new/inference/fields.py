"""Columns and values of JSON as fields of a contract: their Python types, nulls, nested models."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.cli.new.inference.amounts import Amounts, Currencies, amounts
from floodmark.cli.new.inference.times import named_like_time, snake, written
from floodmark.connectors.judging.strictness import exact
from floodmark.core.errors import ConnectorError
from floodmark.spec.values.amounts import Amount
from floodmark.spec.values.annotations import Digits

_LARGEST = (1 << 63) - 1
_MAX_DIGITS = 38
_TOLERATED = 0.01
"""Greatest share of other values in a column of numbers; rows with such values would be quarantined."""
_NUMBERS = (
    ("int", r"^-?(0|[1-9][0-9]{0,17})$"),
    ("Decimal", r"^-?(0|[1-9][0-9]{0,37})$"),
    ("float", r"^([-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(nan|NaN|NAN|inf|Inf|Infinity))$"),
    ("bool", r"^([tT]rue|[fF]alse|TRUE|FALSE)$"),
)
_CODE = r"^[-+]?0[0-9]+$|^\+[0-9]{6,}$"
"""Digits that a number would not keep: a postcode or an id with leading zeros, a telephone number with its plus sign."""
_NUMBER_OF = re.compile(
    r"(^|_)(zip|zip_?codes?|postal|postal_?code|post_?code|plz|phone|telephone|telefon|tel|mobile|fax|fips|isbn|ean|gtin|upc)($|_)"
)
"""Names of fields whose digits are no amount: a later value may begin with a zero or a plus sign."""
_VERSION = re.compile(r"(^|_)(version|release|revision)($|_)", re.IGNORECASE)
"""Names of fields in which ``1.10`` is not ``1.1``."""
_DOUBTFUL = r"^[-+]?([1-9][0-9]{0,2}[.][0-9]{3}|0|[1-9][0-9]{0,2})$"
"""Numbers that a point divides at the thousands, or that have three decimal places."""
_COORDINATE = re.compile(r"(^|_)(lat|lon|lng|long|latitude|longitude)($|_)", re.IGNORECASE)
"""Names of fields whose numbers have no thousands."""
NULL_TEXTS = frozenset(
    [
        "NA",
        "N/A",
        "n/a",
        "na",
        "null",
        "NULL",
        "None",
        "none",
        "nil",
        "-",
        "--",
        "?",
        "\\N",
        "#N/A",
        "#NV",
        "NaN",
        "nan",
        ".",
    ]
)
"""Texts that mean null in a column whose other values are numbers or times."""
_SAID = frozenset(["NA", "N/A", "n/a", "null", "NULL", "None", "nil", "\\N", "#N/A", "#NV"])
"""Those of the texts that are told of where they stay text."""
_MANY_KEYS, _SELDOM = 20, 0.3
"""Objects with more different names than this, which on average occur in fewer than this share of the rows, are maps."""
_SPELLED = {
    "ä": "ae",
    "ö": "oe",
    "ü": "ue",
    "Ä": "Ae",
    "Ö": "Oe",
    "Ü": "Ue",
    "ß": "ss",
    "æ": "ae",
    "ø": "o",
    "å": "a",
    "ł": "l",
}
_RESERVED = {"copy", "json", "dict", "schema", "construct", "validate", "date", "datetime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedField:
    """One column as a field.

    Args:
        column: name in the data; for a field deeper in a JSON document, the names of its path, joined by points.
        name: name of the field; differs from ``column`` if that is no Python name.
        type: the Python type, as text.
        nullable: whether there are nulls in the data.
        digits: (precision, scale) of a decimal.
        format: format of times; None for ISO 8601 and for other types.
        misfits: number of values that are not of the type; their rows would be quarantined.
        absent: number of rows without a value.
        tokens: texts that mean null in other columns, or here, with their numbers of rows.
        amount: how an amount is written; None for other fields.
        note: a comment for the author.
        path: names of the path to a field deeper in a document; empty for other fields.
    """

    column: str
    name: str
    type: str
    nullable: bool
    digits: tuple[int, int] | None = None
    format: str | None = None
    misfits: int = 0
    absent: int = 0
    tokens: tuple[tuple[str, int], ...] = ()
    amount: Amount | None = None
    note: str = ""
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A nested model of a contract."""

    name: str
    fields: tuple[LookedField, ...]


@dataclass(slots=True)
class Fields:
    """Infers fields, and collects the facts that belong to the contract as a whole.

    Args:
        time_formats: formats that the author names, tried first.
        taken: names of classes in use.
        models: nested models, inner models first.
        missing: texts that mean null in columns of CSV that hold no text.
        decimal: sign between whole and fraction that the author names, for columns that can be read with either.
        between: delimiter of a CSV text.
        comma: whether all numbers of a CSV text have a decimal comma, which is not the delimiter.
        left_out: columns that a contract cannot hold, with reasons.
    """

    time_formats: Sequence[str] = ()
    taken: set[str] = field(default_factory=set)
    models: list[Model] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    decimal: str | None = None
    between: str = ""
    comma: bool = False
    left_out: list[str] = field(default_factory=list)
    _amounts: dict[str, Amounts] = field(default_factory=dict)
    _signs: set[str] = field(default_factory=set)

    # ---- CSV and Parquet

    def of_table(self, table: pa.Table, *, typed: bool) -> list[LookedField]:
        """(table) -> a field for each column that a contract can hold.

        Args:
            table: the rows.
            typed: whether a column of texts holds no numbers, as numbers have columns of their types.
        """
        fields = list[LookedField]()
        for column, values in zip(table.column_names, table.columns, strict=True):
            if not column:
                self.left_out.append("'' (no name)")
                continue
            name = python_name(column, {f.name for f in fields})
            kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                texts = values.cast(pa.string())
                looked = (
                    replace(self._of_json_texts(_plain(column), texts.drop_null().to_pylist()), name=name)
                    if typed
                    else self._of_texts(column, name, texts)
                )
            elif (text := self._of_arrow(kind, column)) is None:
                self.left_out.append(f"'{column}' ({values.type})")
                continue
            else:
                looked = LookedField(column=column, name=name, type=text, nullable=False)
                if pa.types.is_decimal(kind):
                    looked = replace(looked, digits=(kind.precision, kind.scale))
                if pa.types.is_timestamp(kind) and kind.tz is None:
                    looked = replace(looked, note="without an offset")
                if text == "date":
                    looked = replace(looked, note="a date")
            absent = looked.absent or values.null_count
            fields.append(replace(looked, nullable=absent > 0, absent=absent))
        return self._with_amounts(fields)

    def _with_amounts(self, fields: list[LookedField]) -> list[LookedField]:
        """The fields, with the types of amounts.

        Raises:
            ConnectorError: CONNECTOR-200, a column can be read with either decimal sign, and neither the author nor other columns decide.
        """
        doubtful = {name: read for name, read in self._amounts.items() if len(read.readings) > 1}
        decimal = self.decimal or (next(iter(self._signs)) if len(self._signs) == 1 else None)
        if doubtful and decimal is None:
            raise _undecided(doubtful)
        chosen = {name: decimal if name in doubtful else next(iter(a.readings)) for name, a in self._amounts.items()}
        commas = [self._amounts[name] for name, sign in chosen.items() if sign == ","]
        alike = bool(commas) and "." not in self._signs and self.between != ","
        self.comma = alike and all(read.simple and read.pointed for read in commas)
        typed = []
        for looked in fields:
            if (read := self._amounts.get(looked.column)) is not None:
                typed.append(_as_amount(looked, read, str(chosen[looked.column]), annotated=not self.comma))
            else:
                typed.append(looked)
        return typed

    def _of_arrow(self, kind: pa.DataType, column: str) -> str | None:
        if pa.types.is_struct(kind):
            return self._model(
                column,
                [(inner.name, text) for inner in kind if (text := self._of_arrow(inner.type, inner.name)) is not None],
            )
        if pa.types.is_map(kind):
            inner = self._of_arrow(kind.item_type, column)
            return f"dict[str, {inner}]" if inner and pa.types.is_string(kind.key_type) else None
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            inner = self._of_arrow(kind.value_type, column)
            return f"list[{inner}]" if inner else None
        if pa.types.is_dictionary(kind):
            return self._of_arrow(kind.value_type, column)
        if pa.types.is_decimal(kind) and kind.precision > _MAX_DIGITS:
            return None
        return next((name for is_kind, name in _ARROW if is_kind(kind)), None)

    def _model(self, column: str, parts: Sequence[tuple[str, str]]) -> str | None:
        """(column, (name, type) of each part) -> the name of a new nested model, whose fields are all nullable; None if there are no parts."""
        fields = list[LookedField]()
        for part, text in parts:
            name = python_name(part, {f.name for f in fields})
            fields.append(LookedField(column=part, name=name, type=text, nullable=True))
        return self._add_model(column, fields) if fields else None

    def _add_model(self, column: str, fields: Sequence[LookedField]) -> str:
        name = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_", column)) or "Part"
        name = name if name[0].isalpha() else f"Part{name}"
        while name in self.taken:
            name += "_" if name.endswith("Part") else "Part"
        self.taken.add(name)
        self.models.append(Model(name=name, fields=tuple(fields)))
        return name

    def _of_texts(self, column: str, name: str, values: pa.ChunkedArray) -> LookedField:
        """The field of a column of texts, by the type that all or nearly all texts have."""
        some = values.drop_null()
        plain = replace(_plain(column), name=name)
        if len(some) == 0:
            return plain
        if (whole := self._of_values(plain, some)) is not None and not whole.misfits:
            return whole
        blank = pc.equal(pc.utf8_trim_whitespace(some), "")
        tokens = pc.or_(blank, pc.is_in(some, pa.array(sorted(NULL_TEXTS))))
        others = some.filter(pc.invert(tokens))
        counted = tuple(
            (entry["values"], entry["counts"]) for entry in pc.value_counts(some.filter(tokens)).to_pylist()
        )
        if 0 < len(others) < len(some) and (fewer := self._of_values(plain, others)) is not None:
            self.missing |= {text for text, _ in counted}
            return replace(fewer, absent=values.null_count + len(some) - len(others), tokens=counted)
        return whole or replace(plain, tokens=tuple((text, rows) for text, rows in counted if text in _SAID))

    def _of_values(self, plain: LookedField, some: pa.ChunkedArray) -> LookedField | None:
        size = len(some)
        counted = {kind: pc.sum(pc.match_substring_regex(some, pattern)).as_py() or 0 for kind, pattern in _NUMBERS}
        kind = max(counted, key=lambda one: counted[one])
        misfits = size - counted[kind]
        altered = kind != "bool" and (
            pc.any(pc.match_substring_regex(some, _CODE)).as_py()
            or (kind == "int" and _NUMBER_OF.search(snake(plain.column)))
            or (kind == "float" and (_VERSION.search(plain.name) or _inexact(some)))
        )
        if misfits <= _TOLERATED * size and not altered and not (kind == "int" and self._is_day(plain.name, some)):
            if kind == "float":
                self._see_points(plain, some)
            digits = (_MAX_DIGITS, 0) if kind == "Decimal" else None
            numbers = replace(plain, type=kind, misfits=misfits, digits=digits)
            return self._as_epoch(numbers)
        times = written(some, self.time_formats) or (
            written(some, ["%Y%m%d"]) if kind == "int" and not misfits and self._is_day(plain.name, some) else None
        )
        if times is None:
            return None if altered else self._of_amounts(plain, some)
        note = times.note or ("a date" if times.type == "date" else "" if times.zoned else "without an offset")
        return replace(plain, type=times.type, format=times.format, misfits=times.misfits, note=note)

    def _see_points(self, plain: LookedField, some: pa.ChunkedArray) -> None:
        """Note whether the points in a column of numbers are decimal points, or may stand between thousands."""
        points = some.filter(pc.match_substring(some, "."))
        if (
            len(points)
            and pc.all(pc.match_substring_regex(some, _DOUBTFUL)).as_py()
            and not _COORDINATE.search(plain.name)
        ):
            read = amounts(some.to_pylist())
            if isinstance(read, Amounts):
                self._amounts[plain.column] = read
        elif len(points):
            self._signs.add(".")

    def _of_amounts(self, plain: LookedField, some: pa.ChunkedArray) -> LookedField | None:
        """The field of a column of amounts; None if the column holds none."""
        read = amounts(some.to_pylist())
        if isinstance(read, Currencies):
            return replace(plain, note=f"several currencies ({', '.join(read.names)}), so the amounts stay text")
        if read is None or (self.between == "," and read.commas * 2 < len(some)):  # `2,2` may be two numbers
            return None
        self._amounts[plain.column] = read
        if len(read.readings) == 1 and max(scale for _, scale in read.readings.values()):
            self._signs |= set(read.readings)
        return replace(plain, type="Decimal", misfits=read.misfits)

    def _is_day(self, name: str, some: pa.ChunkedArray) -> bool:
        """True if whole numbers, in a column named like a time, are days such as 20240131."""
        days = pc.sum(
            pc.match_substring_regex(some, r"^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$")
        ).as_py()
        return named_like_time(name) and days == len(some)

    def _as_epoch(self, numbers: LookedField) -> LookedField:
        """The field as a time since 1970, if the author names such a format and the field is named like a time; else unchanged."""
        form = next((form for form in self.time_formats if form.startswith("epoch")), None)
        if form is None or numbers.type not in {"int", "float"} or not named_like_time(numbers.name):
            return numbers
        return replace(numbers, type="datetime", format=form)

    # ---- JSON

    def of_objects(self, objects: Sequence[Mapping[str, Any]]) -> list[LookedField]:
        """(JSON objects) -> a field for each name, in the order of first occurrence."""
        fields = list[LookedField]()
        for column in dict.fromkeys(name for one in objects for name in one):
            values = [value for one in objects if (value := one.get(column)) is not None]
            name = python_name(column, {f.name for f in fields})
            absent = len(objects) - len(values)
            looked = self._of_json(column, values)
            fields.append(replace(looked, column=column, name=name, nullable=absent > 0, absent=absent))
        return fields

    def _of_json(self, column: str, values: Sequence[Any]) -> LookedField:
        """The field of JSON values, none of which is null."""
        plain = LookedField(column=column, name=column, type="JsonText", nullable=False)
        kinds = {type(value) for value in values}
        if kinds == {str}:
            return self._of_json_texts(plain, values)
        if kinds == {dict}:
            return replace(plain, type=self._of_dicts(column, values))
        if kinds == {list}:
            inner = [item for value in values for item in value]
            if not inner:
                return replace(plain, type="list[JsonText]")
            element = self._of_json(_singular(column), [item for item in inner if item is not None])
            kind = "str" if element.format or element.type == "Decimal" else element.type
            return replace(plain, type=f"list[{kind}{' | None' if None in inner else ''}]")
        if kinds == {bool}:
            return replace(plain, type="bool")
        if kinds == {int}:
            large = max(abs(value) for value in values)
            if large > _LARGEST:
                return replace(plain, type="Decimal", digits=(_MAX_DIGITS, 0))
            form = next((one for one in self.time_formats if one.startswith("epoch")), None)
            return replace(
                plain,
                type="datetime" if form and named_like_time(column) else "int",
                format=form if named_like_time(column) else None,
            )
        if kinds and kinds <= {int, float}:
            return replace(plain, type="float")
        if Digits in kinds and kinds <= {int, float, Digits}:
            return replace(plain, type="Decimal", digits=_digits(values))
        return plain

    def _of_json_texts(self, plain: LookedField, values: Sequence[str]) -> LookedField:
        times = written(pa.chunked_array([pa.array(values, pa.string())]), self.time_formats)
        if times is None:
            return self._of_json_amounts(replace(plain, type="str"), values)
        note = times.note or ("a date" if times.type == "date" else "" if times.zoned else "without an offset")
        return replace(plain, type=times.type, format=times.format, misfits=times.misfits, note=note)

    def _of_json_amounts(self, plain: LookedField, values: Sequence[str]) -> LookedField:
        """The field of texts of JSON: amounts if a currency, or two kinds of separators, show that the texts are numbers."""
        read = amounts(values)
        if isinstance(read, Currencies):
            return replace(plain, note=f"several currencies ({', '.join(read.names)}), so the amounts stay text")
        if read is None or len(read.readings) > 1:
            return plain
        ((sign, (_, scale)),) = read.readings.items()
        return (
            _as_amount(plain, read, sign, annotated=True)
            if read.currency or (scale and read.thousands(sign))
            else plain
        )

    def _of_dicts(self, column: str, values: Sequence[Mapping[str, Any]]) -> str:
        names = dict.fromkeys(name for value in values for name in value)
        if not names:
            return "JsonText"
        seen = sum(len(value) for value in values)
        if len(names) > _MANY_KEYS and seen < _SELDOM * len(names) * len(values):
            inner = self._of_json(
                _singular(column), [item for value in values for item in value.values() if item is not None]
            )
            return f"dict[str, {'str' if inner.format or inner.type == 'Decimal' else inner.type} | None]"
        return self._add_model(column, self.of_objects(values))


_ARROW = (
    (pa.types.is_null, "str"),
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_decimal, "Decimal"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_string, "str"),
    (pa.types.is_large_string, "str"),
)
"""(test of an Arrow type, Python type of its values), the first that applies."""


def _plain(column: str) -> LookedField:
    """The field of a column of any text."""
    return LookedField(column=column, name=column, type="str", nullable=False)


def _as_amount(looked: LookedField, read: Amounts, sign: str, *, annotated: bool) -> LookedField:
    """The field of amounts read with a decimal sign: a float if the amounts are numbers with a fraction alone, else a Decimal."""
    if looked.type == "float" and sign == ".":
        return looked
    amount = Amount("," if sign == "," else ".", currency=read.currency) if annotated or sign == "." else None
    if read.simple and read.readings[sign][1] and not read.thousands(sign):
        return replace(looked, type="float", amount=amount)
    return replace(looked, type="Decimal", digits=read.readings[sign], amount=amount)


def _undecided(doubtful: Mapping[str, Amounts]) -> ConnectorError:
    column, read = next(iter(doubtful.items()))
    readings = {
        ".": Amount(".", currency=read.currency).parse(read.example),
        ",": Amount(",", currency=read.currency).parse(read.example),
    }
    others = f"; likewise {', '.join(list(doubtful)[1:])}" if len(doubtful) > 1 else ""
    got = f"'{read.example}' in column '{column}', which is {readings['.']} or {readings[',']}{others}"
    fix = f"--decimal . reads it as {readings['.']}, --decimal , as {readings[',']}."
    return ConnectorError("--from", "numbers that can be read in one way", got, fix, code="CONNECTOR-200")


def _digits(numbers: Sequence[object]) -> tuple[int, int]:
    """(numbers) -> (precision, scale) of a decimal that holds all their digits, 38 digits at most."""
    scale = max(max(0, -int(Decimal(str(number)).as_tuple().exponent)) for number in numbers)
    return _MAX_DIGITS, min(scale, _MAX_DIGITS)


def _inexact(texts: pa.ChunkedArray) -> bool:
    """True if a float would not hold the digits of a text, or if an exponent may be part of an id, as in ``12e4567``."""
    exponents = texts.filter(pc.match_substring_regex(texts, r"^[0-9]+[eE][0-9]+$"))
    if len(exponents) and not pc.any(pc.match_substring_regex(texts, r"\.|[eE][-+]")).as_py():
        return True
    long = texts.filter(pc.match_substring_regex(texts, r"^[-+]?[0-9.]{16,}$|^[-+]?[0-9.]+[eE][-+]?[0-9]{3,}$"))
    return any(isinstance(exact(text), Digits) for text in long.to_pylist())


def _singular(name: str) -> str:
    """A name for an element of a list: ``tags`` -> ``tag``."""
    return name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else f"{name}_item"  # noqa: PLR2004 - not `is`


def in_ascii(text: str) -> str:
    """A text with letters of ASCII alone: ``Köln`` as ``Koeln``, ``São`` as ``Sao``. Letters without such a form are left out."""
    spelled = "".join(_SPELLED.get(letter, letter) for letter in unicodedata.normalize("NFC", text))
    return unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()


def python_name(column: str, taken: Iterable[str]) -> str:
    """(column) -> a name for a contract's field. Differs from the names in ``taken`` even without regard to case."""
    name = column
    if not name.isidentifier() or name.startswith("_") or unicodedata.normalize("NFKC", name) != name:
        name = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", column)).strip("_").lower()
        name = name if f"a{name}".isidentifier() else re.sub(r"\W+", "_", in_ascii(name)).strip("_")
    name = f"column_{name}" if not name or not name[0].isalpha() else name
    name = f"{name}_" if keyword.iskeyword(name) or name.startswith("model_") or name in _RESERVED else name
    used = {one.lower() for one in taken}
    while name.lower() in used:
        name += "_"
    return name
