"""CUBE, ROLLUP and GROUPING SETS: a row counts once in each set of keys, with null for the keys that the set leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from sqlglot import exp

from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.sql.refusals import unsayable
from floodmark.sql.text import Text

MOST_SETS = 64
"""Most sets of keys in a GROUP BY: each row is processed once for each of them."""
Keys = tuple[exp.Expr, ...]


def sets_of(node: exp.Expr) -> list[Keys]:
    """The sets of keys of an element of GROUP BY; a plain expression is one set of one key."""
    match node:
        case exp.GroupingSets():
            return [keys for part in node.expressions for keys in sets_of(part)]
        case exp.Rollup():
            parts = [_keys(part) for part in node.expressions]
            return [_together(parts[:length]) for length in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_keys(part) for part in node.expressions]
            chosen = product((True, False), repeat=len(parts))
            return [_together([part for part, taken in zip(parts, taking, strict=True) if taken]) for taking in chosen]
        case _:
            return [_keys(node)]


def _keys(node: exp.Expr) -> Keys:
    if isinstance(node, exp.Paren):
        return _keys(node.this)
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)


def _together(parts: list[Keys]) -> Keys:
    return tuple(key for part in parts for key in part)


def is_set(node: exp.Expr) -> bool:
    """Whether an element of GROUP BY stands for several sets of keys."""
    return isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets))


@dataclass(frozen=True, slots=True)
class KeySets:
    """The sets of keys of a GROUP BY.

    Args:
        keys: column of the key in the result -> the expression of its values, in the order of GROUP BY.
        sets: the keys of each set.
        number: column that tells the sets apart: as of GROUPING_ID.
    """

    keys: dict[str, str]
    sets: tuple[frozenset[str], ...]
    number: str

    def rows(self, stream: Stream[Any]) -> Stream[Any]:
        """Each row once per set, with the columns of the keys."""
        parts = [stream.with_columns(**self._columns(stream, chosen)) for chosen in self.sets]
        return parts[0].union(*parts[1:])

    def _columns(self, stream: Stream[Any], chosen: frozenset[str]) -> dict[str, Any]:
        types = stream.with_columns(**dict[str, Any](self.keys)).schema.types
        columns = {key: text if key in chosen else f"CAST(NULL AS {types[key]})" for key, text in self.keys.items()}
        return columns | {self.number: str(self.id_of(chosen))}

    def id_of(self, chosen: frozenset[str]) -> int:
        """The number of a set: a bit per key, the last key's the lowest, 1 if the set leaves the key out."""
        return int("".join("0" if key in chosen else "1" for key in self.keys) or "0", 2)

    def left_out(self, key: str) -> str:
        """The expression of GROUPING(key): 1 for rows whose set leaves the key out."""
        bit = len(self.keys) - 1 - list(self.keys).index(key)
        return f"(({itself(self.number)} DIV {1 << bit}) % 2)"


def combined(text: Text, node: exp.Expr, parts: list[list[tuple[str, ...]]]) -> Iterator[frozenset[str]]:
    """(sets of each element of GROUP BY, as keys) -> the sets of all elements together."""
    seen: set[frozenset[str]] = set()
    for number, chosen in enumerate(product(*parts), 1):
        keys = frozenset(key for part in chosen for key in part)
        if keys in seen or number > MOST_SETS:
            got = "one set of keys twice" if keys in seen else f"more than {MOST_SETS} sets of keys"
            raise unsayable(text, node, got, "Name each set of keys once, by GROUPING SETS ((a, b), (a), ()).")
        seen.add(keys)
        yield keys
