"""Questions: which results the parameters of a URL ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from floodmark.core.errors import closest, shown
from floodmark.serve.refusals import Malformed, TooLarge
from floodmark.serve.runs import Key
from floodmark.serve.values import HIGHEST, NULL, KeyColumn

MOST_ROWS = 10_000
"""Most rows of a page."""
_ROWS = 1_000
"""Rows of a page by default."""
LONGEST = 32_768
"""Most characters of the parameters of a URL."""
_PLAIN = ("null", "limit", "format", "as_of", "cursor")

Parameters = Sequence[tuple[str, str]]
"""(name, value) of each parameter, in order."""


class Keyed(Protocol):
    """What is asked by key: an output, or the state of an operator."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        """Columns of the key, in the order in which ranges go through them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of an output.

    Args:
        lower: the first key.
        upper: the key behind the last.
        is_point: whether one key is asked for: ``lower``.
        limit: most rows of the answer.
        format: ``json``, ``arrow`` or ``parquet``.
        savepoint: name of the savepoint as of which it is asked; empty for the last commit.
        cursor: of the page before; empty for the first.
    """

    lower: Key
    upper: Key
    is_point: bool
    limit: int
    format: str
    savepoint: str
    cursor: str


def question(keyed: Keyed, parameters: Parameters) -> Question:
    """Read the parameters of a URL.

    Raises:
        Malformed: SERVE-001 no such parameter, SERVE-002 a value of another type, SERVE-007 key columns that do not begin the key,
            SERVE-008 another number or format, SERVE-009 a parameter twice.
        TooLarge: SERVE-010.
    """
    check_length(parameters)
    where, columns = f"'{keyed.name}'", {key.name: key for key in keyed.keys}
    exact, lower, upper, plain = _sorted(where, columns, parameters)
    key = _prefix(where, keyed.keys, exact, lower, upper)
    bounded = keyed.keys[len(key)] if len(key) < len(keyed.keys) else None
    first = lower.get(bounded.name) if bounded else None
    last = upper.get(bounded.name) if bounded else None
    return Question(
        lower=(*key, first) if first else key,
        upper=(*key, last) if last else (*key, HIGHEST),
        is_point=len(key) == len(keyed.keys),
        limit=_limit(where, plain.get("limit")),
        format=_format(where, plain.get("format", "json")),
        savepoint=plain.get("as_of", ""),
        cursor=plain.get("cursor", ""),
    )


def key_of(keyed: Keyed, values: object) -> Key:
    """The key that an object of JSON names: column -> value.

    Raises:
        Malformed: SERVE-002, SERVE-007.
    """
    where = f"'{keyed.name}'"
    if not isinstance(values, Mapping) or set(values) != {key.name for key in keyed.keys}:
        fix = f"Give every key column and no other: {', '.join(f'{key.name} {key.type}' for key in keyed.keys)}."
        raise Malformed(where, "an object with the key columns", shown(values), fix, code="SERVE-007")
    return tuple(NULL if values[key.name] is None else key.parsed(values[key.name]) for key in keyed.keys)


def check_length(parameters: Parameters) -> None:
    """Refuse parameters that are too long.

    Raises:
        TooLarge: SERVE-010.
    """
    size = sum(len(name) + len(value) for name, value in parameters)
    if size > LONGEST:
        fix = "Ask for long keys in the body: POST .../lookup."
        raise TooLarge("parameters", f"at most {LONGEST} characters", f"{size}", fix, code="SERVE-010")


Bounds = dict[str, tuple[object, ...]]


def _sorted(
    where: str, columns: Mapping[str, KeyColumn], parameters: Parameters
) -> tuple[Bounds, Bounds, Bounds, dict[str, str]]:
    """The parameters by kind: (equal, from, to) with values, and the others."""
    exact, lower, upper, plain = Bounds(), Bounds(), Bounds(), dict[str, str]()
    kinds = {"key": exact, "from": lower, "to": upper}
    for name, text in parameters:
        kind, dot, column = name.partition(".")
        if name == "null":
            kind, column, value = "key", text, NULL
        elif dot and kind in kinds:
            value = None
        elif name in _PLAIN:
            if name in plain:
                raise _twice(where, name)
            plain[name] = text
            continue
        else:
            known = [*_PLAIN, *(f"{kind}.{one}" for kind in kinds for one in columns)]
            fix = f"{closest(name, known)}Parameters: {', '.join(known)}."
            raise Malformed(where, "parameters that it knows", shown(name), fix, code="SERVE-001")
        if column not in columns:
            fix = f"{closest(column, columns)}Key columns: {', '.join(f'{key.name} {key.type}' for key in columns.values())}."
            raise Malformed(where, "a key column", shown(column), fix, code="SERVE-001")
        if column in kinds[kind]:
            raise _twice(where, f"{kind}.{column}")
        kinds[kind][column] = columns[column].parsed(text) if value is None else value
    return exact, lower, upper, plain


def _twice(where: str, name: str) -> Malformed:
    fix = "Give it once; several keys are asked for by POST .../lookup."
    return Malformed(where, "each parameter once", f"{name} twice", fix, code="SERVE-009")


def _prefix(where: str, keys: Sequence[KeyColumn], exact: Bounds, lower: Bounds, upper: Bounds) -> Key:
    """The values of the columns that begin the key; a range may follow in the next column."""
    count = 0
    while count < len(keys) and keys[count].name in exact:
        count += 1
    following = {keys[count].name} if count < len(keys) else set()
    if len(exact) > count or (lower.keys() | upper.keys()) - following:
        names = ", ".join(key.name for key in keys)
        asked = ", ".join([*(f"key.{n}" for n in exact), *(f"from.{n}" for n in lower), *(f"to.{n}" for n in upper)])
        fix = f"The order of the key is {names}: give values of its first columns by key.NAME, and a range of the next one by from.NAME and to.NAME."
        raise Malformed(where, "values of the first columns of the key", asked, fix, code="SERVE-007")
    return tuple(exact[key.name] for key in keys[:count])


def _limit(where: str, text: str | None) -> int:
    if text is None:
        return _ROWS
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST_ROWS:
        fix = "Take the further rows by the cursor of the answer, or all of them by /bulk."
        raise Malformed(f"{where}, limit", f"1 to {MOST_ROWS}", shown(text), fix, code="SERVE-008")
    return int(text)


def _format(where: str, text: str) -> str:
    if text not in {"json", "arrow", "parquet"}:
        fix = "Leave it out for json."
        raise Malformed(f"{where}, format", "json, arrow or parquet", shown(text), fix, code="SERVE-008")
    return text
