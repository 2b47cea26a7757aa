"""Expressions out of expressions: columns of what is let through, replaced by others of their type."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from parity.values import SCHEMA

from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded.parity.check import sail_sql
from floodmark.spec.expressions import expression

COLUMN = re.compile(r"(?<![\w'.\\`])[a-z]{1,3}[123](?![\w'(])")
LEFT_OUT = re.compile(r"'|element_at\(")
"""Texts, in which a name may be no column; and what ends Spark 4.2's Java at the index -2147483648."""
_LONGEST = 60
"""Characters of an expression that others are made of."""


def passes(text: str) -> bool:
    """Whether the embedded engine takes an expression."""
    try:
        sail_sql(text, SCHEMA, "nested")
    except FloodmarkError:
        return False
    return True


def nested(texts: Sequence[str], count: int, chance: random.Random) -> Iterator[str]:
    """So many expressions of two to four levels that are let through.

    Args:
        texts: to make them of.
        count: how many.
        chance: what is drawn.
    """
    short = [text for text in texts if len(text) <= _LONGEST and not LEFT_OUT.search(text) and passes(text)]
    by_type: dict[str, list[str]] = defaultdict(list)
    for text in short:
        by_type[expression(text, SCHEMA, "nested").type].append(text)
    types, made = SCHEMA.types, 0
    outer = [text for text in short if COLUMN.search(text)]
    for _ in range(200 * count):
        text = chance.choice(outer)
        for _level in range(chance.choice((1, 1, 2, 3))):
            text = COLUMN.sub(lambda match: _inner(match[0], types, by_type, chance), text)
        if passes(text):
            yield text
            made += 1
            if made == count:
                return


def _inner(name: str, types: dict[str, str], by_type: dict[str, list[str]], chance: random.Random) -> str:
    choices = by_type.get(types.get(name, ""), [])
    return f"({chance.choice(choices)})" if choices and chance.random() < 0.6 else name
