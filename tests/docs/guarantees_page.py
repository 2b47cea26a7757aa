"""Writes docs/guarantees.md: what each source and each delivery holds to. ``PYTHONPATH=tests/support python tests/docs/guarantees_page.py > docs/guarantees.md``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

from small_lake import TOTALS
from streams import PLAIN

from floodmark import (
    Connector,
    Delivery,
    DeltaTable,
    Files,
    Kafka,
    Rows,
    SqlTable,
    ToFiles,
    ToKafka,
    ToLake,
    ToRedis,
    ToSearch,
    ToSql,
    ToWebhook,
)
from floodmark.deliveries.sink import CommitSink, Sink
from floodmark.spec.assets.delivery import Guarantee, routes
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.debezium import Debezium

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "embedded" / "test_connector_suite.py"
REVISABLE: dict[type[Connector], tuple[Connector, str]] = {
    Files: (Files("x", format="json", envelope=Debezium(read="changes")), '`envelope=Debezium(read="changes")`'),
    DeltaTable: (DeltaTable("x", read="changes"), '`read="changes"`'),
    Kafka: (Kafka("x", "x:1", envelope=Debezium(read="changes")), '`envelope=Debezium(read="changes")`'),
}
"""Connector -> settings with which it takes rows back, as a value and as a text."""
SOURCES: dict[type[Connector], str] = {
    Files: "tests/crash/test_landing_crash.py::test_a_landing_killed_at_every_point_in_turn_goes_on_as_if_nothing_had_happened",
    DeltaTable: "tests/spark/test_changes.py::test_the_changes_of_a_table_come_to_what_it_holds",
    Kafka: "tests/embedded/test_kafka.py::test_each_message_lands_once_in_order_with_the_watermark_of_its_partitions",
    SqlTable: "tests/embedded/test_sql_tables.py::test_each_row_lands_once_in_order",
    Rows: "",
}
"""Connector -> the test that shows that it lands each row once and in order, beside the suite."""
DELIVERIES: tuple[tuple[str, Delivery, Operator, str], ...] = (
    (
        "`ToSql`",
        ToSql("sqlite://"),
        TOTALS,
        "tests/embedded/test_deliveries.py::test_a_table_has_the_last_values_after_each_step",
    ),
    (
        "`ToRedis`",
        ToRedis("redis://x"),
        TOTALS,
        "tests/embedded/test_redis.py::test_keys_have_the_last_values_after_each_step",
    ),
    (
        "`ToSearch`",
        ToSearch("http://x"),
        TOTALS,
        "tests/embedded/test_search.py::test_an_index_has_the_last_values_after_each_step",
    ),
    (
        "`ToKafka`",
        ToKafka("t", "b:1"),
        TOTALS,
        "tests/embedded/test_deliveries.py::test_a_reader_of_the_topic_sees_each_change_once",
    ),
    (
        "`ToKafka(transactions=False)`",
        ToKafka("t", "b:1", transactions=False),
        TOTALS,
        "tests/embedded/test_delivery_sinks.py::test_without_transactions_messages_that_are_sent_again_have_the_headers_that_they_had",
    ),
    (
        "`ToFiles`",
        ToFiles("x"),
        PLAIN,
        "tests/embedded/test_deliveries.py::test_files_have_the_results_after_each_step",
    ),
    (
        "`ToFiles(changes=True)`",
        ToFiles("x", changes=True),
        TOTALS,
        "tests/embedded/test_deliveries.py::test_files_have_the_results_after_each_step",
    ),
    (
        "`ToLake`",
        ToLake("x"),
        TOTALS,
        "tests/crash/test_supervised_replica.py::test_replicas_are_streams_that_are_killed_started_again_seen_and_stopped",
    ),
    (
        "`ToWebhook`",
        ToWebhook("https://x.example.com/x"),
        TOTALS,
        "tests/embedded/test_delivery_sinks.py::test_a_change_that_is_sent_again_has_the_key_that_it_had",
    ),
)
"""Text, settings, an operator that they can deliver, and the test that shows it."""
EFFECTS: dict[Guarantee, str] = {
    "transaction": "once: changes and position in one transaction",
    "key": "at least once; what is sent again has the key or the name that it had",
    "append": "at least once",
}
_HEAD = """# Guarantees of sources and deliveries

What is said here is read from the settings of the connectors and from their sinks, and shown by the tests that are named.
Written by `PYTHONPATH=tests/support python tests/docs/guarantees_page.py > docs/guarantees.md`.

"""
_SOURCES = """## Sources

Each row of a source lands once, whatever is killed: a unit lands whole or not at all, and the commit of the log that has its rows also says that it has landed, and
up to which position its source has been read. Until it has landed, a unit is the same rows whenever it is read. Afterwards all rows are in the log: streams, rollbacks, backfills and upgrades read
them from there, and need the source no more. A rollback of a stream takes nothing of the log back.

"""
_DELIVERIES = """## Deliveries

A delivery follows the log of an output, commit by commit, and begins again behind its position. Changes of one result are delivered in the order of the commits.
Of a topic, *once* holds for readers with `isolation.level=read_committed`. What is delivered by key or name once more changes nothing for receivers that go by it; readers of
files go by `_floodmark.json`.

"""
_CHECKS = """## What each connector passes

The checks of `floodmark.testing.connectors`, for [connectors of your own](connectors.md#checked-as-floodmarks-own) too: **x** in every run of the tests, **o** in `make soak`.

"""


@cache
def suite() -> ModuleType:
    """The tests of all connectors."""
    spec = importlib.util.spec_from_file_location("connector_suite", SUITE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page() -> str:
    """All of it."""
    return "".join([_HEAD, _SOURCES, *_sources(), "\n", _DELIVERIES, *_deliveries(), "\n", _CHECKS, *_checks()])


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = [*head]
    return [f"| {' | '.join(cells)} |\n" for cells in (columns, ["---"] * len(columns), *rows)]


def _sources() -> list[str]:
    head = ("source", "lands whole", "in the order of", "watermark", "takes rows back", "shown by")
    return _table(head, ([f"`{kind.__name__}`", *_source(kind), _test(test)] for kind, test in SOURCES.items()))


def _source(kind: type[Connector]) -> list[str]:
    settings, text = REVISABLE.get(kind, (None, ""))
    assert settings is None or settings.revisable
    watermark = "the minimum over its partitions" if kind.partitioned else "one"
    return [kind.unit, kind.order, watermark, f"with {text}" if settings is not None else "no"]


def _deliveries() -> list[str]:
    head = (
        "delivery", "a change takes effect", "a delivery has", "a result that is revised", "the position is kept", "begins with", "a rollback", "shown by",
    )  # fmt: skip
    return _table(head, ([text, *_delivery(*about), _test(test)] for text, *about, test in DELIVERIES))  # type: ignore[misc]


def _delivery(delivery: Delivery, operator: Operator) -> list[str]:
    (route,) = routes(operator, [delivery], "guarantees")
    sink = delivery.sink(route)
    remembers = isinstance(sink, CommitSink) or sink.remembers
    forgets = isinstance(sink, Sink) and sink.forgets
    place = "where it delivers to" if remembers else "in the lake, behind the changes"
    return [
        EFFECTS[delivery.guarantee],
        _has(sink),
        "updated or deleted" if delivery.retracts else "is refused when it is defined (DEFINITION-331)",
        f"{place}, and in the lake where that forgets it" if remembers and forgets else place,
        "the changes after the first start" if delivery.from_now else "all results",
        "is delivered as the difference" if delivery.revocable else "is told as further changes",
    ]


def _has(sink: Sink | CommitSink) -> str:
    if isinstance(sink, CommitSink):
        return "the commits that are there, as they are"
    return "one commit" if sink.commit_by_commit else "the commits that are there, each result once"


def _checks() -> list[str]:
    kinds: dict[str, tuple[type, type[Connector]]] = suite().INPUTS
    names = [f"{'your own' if kind is Connector else kind.__name__}: {name}" for name, (_, kind) in kinds.items()]
    return _table(("check", *names), ([_says(check), *_marks(check, kinds)] for check in suite().CHECKS))


def _says(check: Callable[..., None]) -> str:
    return check.__name__.replace("_", " ")


def _marks(check: Callable[..., None], kinds: Iterable[str]) -> list[str]:
    return ["x" if suite().ALWAYS.get(check, kind) == kind else "o" for kind in kinds]


def _test(test: str) -> str:
    """A link to a test."""
    file, _, name = test.partition("::")
    if not name:
        return "the examples of the pages"
    soaked = f"@pytest.mark.soak\ndef {name}(" in (ROOT / file).read_text("utf-8")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{file}){' (in `make soak`)' if soaked else ''}"


if __name__ == "__main__":
    sys.stdout.write(page())
