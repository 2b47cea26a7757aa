"""Functions of the user in statements and in Python: scalar ones, table functions and aggregates, with their code in the version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import floodmark as fm
from floodmark import Contract, EventTime, Operator, Stream, operator, sql_operator
from floodmark.core.errors import FloodmarkError
from floodmark.testing import IN_MEMORY, RUNS
from floodmark.testing.runs import Run


class Message(Contract):
    """A text."""

    at: EventTime
    text: str | None = None
    stars: int = 0


class Word(Contract):
    """A word and its length."""

    word: str
    length: int


@fm.function
def slug(text: str | None, stars: int) -> str | None:
    return None if text is None else f"{text.lower().replace(' ', '-')}-{stars}"


@fm.function
def long(text: str | None) -> bool:
    return text is not None and len(text) > 5


@fm.function(schema=Word)
def words(text: str | None) -> Iterator[dict[str, Any]]:
    for word in (text or "").split():
        yield {"word": word, "length": len(word)}


class Spread(fm.Aggregate):
    """The greatest value less the least one."""

    type = "bigint"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        return [min(accumulator[0], value), max(accumulator[1], value)] if accumulator else [value, value]

    def merge(self, left: Any, right: Any) -> Any:
        return [min(left[0], right[0]), max(left[1], right[1])] if left and right else left or right

    def result(self, accumulator: Any) -> Any:
        return accumulator[1] - accumulator[0] if accumulator else None


OWN = [slug, long, words, Spread]
ROWS = [("A big Day", 3), (None, 4), ("Rain", 5), ("Rain again", 9)]


def stated(sql: str) -> Operator:
    return sql_operator("stated", sql, inputs={"messages": Message}, functions=OWN)


def answers(of: Operator) -> list[tuple[Any, ...]]:
    rows = [{"at": datetime(2020, 1, 1, n, tzinfo=UTC), "text": text, "stars": s} for n, (text, s) in enumerate(ROWS)]
    results = [run(of, {"messages": rows})[""] for run in IN_MEMORY]
    assert results[0] == results[1]
    return sorted((tuple(row.values()) for row in results[0]), key=repr)


STATEMENTS: dict[str, list[tuple[Any, ...]]] = {
    "SELECT stars, slug(text, stars + 1) AS s FROM messages WHERE long(text)": [(3, "a-big-day-4"), (9, "rain-again-10")],
    "SELECT upper(slug(upper(text), stars)) AS s FROM messages WHERE stars > 4": [("RAIN-5",), ("RAIN-AGAIN-9",)],
    "SELECT slug(slug(text, 1), 2) FROM messages WHERE stars = 5": [("rain-1-2",)],
    "SELECT stars, word FROM messages, LATERAL TABLE(words(text)) AS w(word, n) WHERE n > 3": [(5, "Rain"), (9, "Rain"), (9, "again")],
    "SELECT stars, w.length FROM messages LEFT JOIN LATERAL TABLE(words(text)) AS w ON TRUE WHERE stars < 5": [(3, 1), (3, 3), (3, 3), (4, None)],
    "SELECT long(text) AS big, COUNT(*) AS n, SPREAD(stars) AS spread FROM TUMBLE(messages, at, '1 day') GROUP BY long(text), window_start": [(False, 2, 1), (True, 2, 6)],
}  # fmt: skip


@pytest.mark.feature("Q5")
@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_statement_calls_functions_of_the_user(sql: str) -> None:
    assert answers(stated(sql)) == STATEMENTS[sql]


@pytest.mark.feature("Q5")
def test_apply_gives_the_same_and_the_code_is_part_of_the_version() -> None:
    def fluent(messages: Stream[Message]) -> Stream:
        return messages.apply(slug, "text", "stars", names="s").select("stars", "s")

    written = stated("SELECT stars, slug(text, stars) AS s FROM messages")
    assert [row[1] for row in answers(operator(fluent))] == [row[1] for row in answers(written)]

    @fm.function
    def slug2(text: str | None, stars: int) -> str | None:
        return None if text is None else f"{text.lower().replace(' ', '_')}-{stars}"

    slug2.__name__ = "slug"
    other = sql_operator(
        "stated", "SELECT stars, slug(text, stars) AS s FROM messages", inputs={"messages": Message}, functions=[slug2]
    )
    assert other.fingerprint != written.fingerprint
    assert written.fingerprint == stated("SELECT stars, slug(text, stars) AS s FROM messages").fingerprint


def test_what_is_no_function_of_a_statement_is_refused() -> None:
    with pytest.raises(FloodmarkError, match="DEFINITION-051"):
        sql_operator("x", "SELECT text FROM messages", inputs={"messages": Message}, functions=[len])
    with pytest.raises(FloodmarkError, match="DEFINITION-051"):
        fm.function(lambda text: text)
    with pytest.raises(FloodmarkError, match="Table functions: words"):
        stated("SELECT text FROM messages, LATERAL TABLE(slug(text, 1)) AS w(x)")
    with pytest.raises(FloodmarkError, match="DEFINITION-142"):
        stated("SELECT slugs(text) AS x FROM messages")


@pytest.mark.feature("Q5")
@pytest.mark.parametrize("run", [run for run in RUNS if run.engine == "embedded"], ids=str)
def test_workers_of_the_embedded_engine_call_them(run: Run) -> None:
    of = stated("SELECT stars, slug(text, stars) AS s, word FROM messages, LATERAL TABLE(words(text)) AS w(word, n)")
    rows = [{"at": datetime(2020, 1, 1, n, tzinfo=UTC), "text": text, "stars": s} for n, (text, s) in enumerate(ROWS)]
    found = sorted(tuple(row.values()) for row in run(of, {"messages": rows})[""])
    assert found[0] == (3, "a-big-day-3", "A")
    assert len(found) == 6
