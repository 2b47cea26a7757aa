"""Expressions in a statement are those of the fluent API, in the same text: one grammar decides."""

from __future__ import annotations

import re

import pytest
from spark_answers import EXPRESSIONS, SCHEMA

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.sql.options import Options
from floodmark.sql.relation import Name, Relation
from floodmark.sql.statement import Statement
from floodmark.sql.text import parsed

ROWS = Relation(
    stream=Stream(steps.Read("t", SCHEMA), "x"),
    names=tuple(Name(table="t", name=name, text=itself(name), column=name) for name in SCHEMA.names),
)
UNREAD = re.compile(r">>>|!>|!<|parse_json\(.*\):")
"""Operators that sqlglot does not read: refused as no SQL."""


def allowed(text: str) -> bool:
    try:
        known_type(text, SCHEMA, "test")
    except DefinitionError:
        return False
    return True


def stream_of(sql: str) -> steps.Step:
    text, tree = parsed(sql, "test")
    return Statement(text, tree, Options()).stream({"t": ROWS}).step


def squeezed(text: str) -> str:
    """A statement drops backticks that a name does not need: with them and without them it is one expression."""
    return re.sub(r"\s+", " ", text.replace("`i`", "i"))


def test_every_expression_of_the_fluent_api_comes_through_a_statement_as_it_was_written() -> None:
    texts = [text for text in EXPRESSIONS if allowed(text) and not UNREAD.search(text)]
    assert len(texts) > 1000
    for text in texts:
        selected = stream_of(f"SELECT {text} AS x FROM t")
        assert isinstance(selected, steps.Project)
        assert squeezed(selected.columns[0][1]) == squeezed(text)
        kept = next(
            step
            for step in steps.walk(stream_of(f"SELECT i FROM t WHERE ({text}) IS NOT NULL"))
            if isinstance(step, steps.Filter)
        )
        assert squeezed(kept.condition) == f"({squeezed(text)}) IS NOT NULL"


@pytest.mark.parametrize("text", ["n >>> 1", "i !> j"])
def test_an_operator_that_is_not_read_is_refused_and_not_taken_for_another(text: str) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-381"):
        stream_of(f"SELECT {text} AS x FROM t")
