"""``ToSearch``: an index has the last values, whatever is killed, taken back or computed anew; and what is wrong with a server. The server is OpenSearch."""

from __future__ import annotations

import json
import math
import threading
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import search_server
import small_lake
from delivery_schedule import Schedule, delivered, process, results
from every_type import passing
from search_server import Server
from small_lake import TOTALS, row
from streams import PLAIN, WINDOWED

from floodmark import Env, ToSearch
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, DefinitionError, LifecycleError
from floodmark.deliveries.documents import document
from floodmark.deliveries.run import Delivery, deliver
from floodmark.deliveries.sink import Change, Changes
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route, routes
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION

SOAKED = [(code, seed) for seed in range(2, 27) for code in (WINDOWED, PLAIN)]
ALL = [
    pytest.param(WINDOWED, 1, marks=pytest.mark.feature("D5")),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in SOAKED),
]

EACH = {"delivery.after_batch", "delivery.before_commit", "delivery.after_commit"}
"""Points of every run: behind documents, before the alias moves, behind it."""
POINTS = [point if point in EACH else pytest.param(point, marks=pytest.mark.soak) for point in crash.POINTS["delivery"]]


@pytest.fixture
def server(search: Server) -> Server:
    """A server without indexes."""
    search.ask("PUT", "/_cluster/settings", {"persistent": {"action.destructive_requires_name": "false"}})
    search.ask("DELETE", "/*")
    return search


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


def bound(url: Any, **settings: Any) -> Route:
    """The delivery of the results."""
    return routes(TOTALS, [ToSearch(url, **settings)], "test")[0]


def totals(server: Server, index: str = "totals") -> dict[Any, int]:
    """key -> total."""
    return {one["key"]: one["total"] for one in search_server.documents(server.url, index)}


@pytest.mark.feature("Z28")
@pytest.mark.parametrize(("code", "seed"), ALL)
def test_an_index_has_the_last_values_after_each_step(
    sail: Sail, server: Server, code: Operator, seed: int, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    schedule, killed = Schedule(sail, code, lake, seed), 0
    for _ in range(3 if seed == 1 else 8):
        schedule.draw()
        killed += schedule.deliver("search", server.url, kills=1 if seed == 1 else 2)
        rows = search_server.documents(server.url, code.name)
        assert delivered(rows, schedule.code) == results(lake, schedule.code), schedule.done
    assert killed


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("whole", [pytest.param(False, marks=pytest.mark.soak), True], ids=["changes", "anew"])
@pytest.mark.few(1)
def test_a_kill_at_a_point_is_made_good_by_the_next_delivery(
    lake: Lake, server: Server, point: str, *, whole: bool
) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8), row("a", 11, 9)])
    if whole:
        server.ask("DELETE", "/totals-*")
    process(lake, TOTALS, "search", server.url, at=point)
    if whole:
        assert "totals" not in server.ask("GET", "/_alias") or totals(server) == {"a": 11, "d": 4}, "all or nothing"
    assert process(lake, TOTALS, "search", server.url) == 0
    assert totals(server) == {"a": 11, "d": 4}
    assert len(server.ask("GET", "/totals-*")) == 1


def test_a_server_that_is_killed_goes_on_with_what_it_had(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    server.stop(kill=True)
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    with pytest.raises(ConnectorError, match="DELIVERY-001 delivery 'totals_to_search'"):
        deliver(bound(server.url), lake, until_caught_up=True)
    server.start()
    deliveries: list[Delivery] = []
    deliver(bound(server.url), lake, until_caught_up=True, on_delivery=deliveries.append)
    assert totals(server) == {"a": 10, "b": 2, "d": 4}
    assert [(one.rows, one.whole) for one in deliveries] == [(1, False)]


def test_an_index_that_is_removed_meanwhile_is_delivered_anew(lake: Lake, server: Server) -> None:
    stop, deliveries = threading.Event(), list[Delivery]()

    def on_delivery(delivery: Delivery) -> None:
        deliveries.append(delivery)
        if len(deliveries) == 1:
            server.ask("DELETE", "/totals-*")
            small_lake.batch(lake, 2, [row("d", 4, 8)])
        else:
            stop.set()

    deliver(bound(server.url), lake, stop=stop, on_delivery=on_delivery)
    assert totals(server) == {"a": 10, "b": 2, "d": 4}
    assert deliveries[-1].whole


def test_a_field_of_another_type_makes_a_new_index(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    (index,) = server.ask("GET", "/totals-*")
    mapping = server.ask("GET", f"/{index}/_mapping")[index]["mappings"]
    mapping["properties"]["total"] = {"type": "keyword"}
    server.ask("DELETE", f"/{index}")
    server.ask("PUT", f"/{index}", {"mappings": mapping, "aliases": {"totals": {}}})
    deliver(bound(server.url), lake, until_caught_up=True)
    assert totals(server) == {"a": 10, "b": 2}
    (other,) = server.ask("GET", "/totals-*")
    assert server.ask("GET", f"/{other}/_mapping")[other]["mappings"]["properties"]["total"] == {"type": "long"}


def test_documents_have_values_as_they_are_and_fields_find_them(server: Server) -> None:
    row = {
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "key": "Straße",
        "yes": None,
        "whole": 2**63 - 1,
        "real": math.nan,
        "exact": Decimal("-12345678.90"),
        "day": date(1, 1, 1),
        "moment": datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
        "raw": b"\x00\xff",
        "tags": ["a", "", None],
        "labels": {"a.b": 1, "": 2},
        "address": {"city": "Köln", "zip": None},
        "nothing": None,
    }
    position = Delivered(table="t", version=0, number=0, lake="here")
    sink = ToSearch(server.url).sink(routes(passing, [ToSearch(server.url)], "test")[0])
    with closing(sink):
        sink.prepare()
        changes = [Change("0" * 32, row, {}, 0), Change("1" * 32, {**row, "key": "x" * 40_000}, {}, 0)]
        sink.deliver(
            Changes(batches=iter([changes]), documents=iter(()), position=position, before=None, whole=True), 0
        )
        change = Change("1" * 32, None, {}, 0)
        for _ in range(2):  # as if it was killed in between
            sink.deliver(Changes(batches=iter([[change]]), documents=iter(()), position=position, before=position), 1)
    assert search_server.documents(server.url, "passing") == [json.loads(document(row))]
    for query in (
        {"term": {"whole": 2**63 - 1}},
        {"term": {"key.keyword": "Straße"}},
        {"range": {"exact": {"lt": 0}}},
        {"range": {"day": {"lt": "0002-01-01"}}},
        {"term": {"address.city.keyword": "Köln"}},
        {"term": {"tags.keyword": "a"}},
    ):
        assert server.ask("GET", "/passing/_search", {"query": query})["hits"]["total"]["value"] == 1, query


def test_documents_of_others_are_not_touched(lake: Lake, server: Server, tmp_path: Path) -> None:
    server.ask("PUT", "/totals/_doc/1", {"mine": 1})
    with pytest.raises(ConnectorError, match=r"DELIVERY-004 .*index 'totals'.*index="):
        deliver(bound(server.url), lake, until_caught_up=True)
    assert search_server.documents(server.url, "totals") == [{"mine": 1}]
    deliver(bound(server.url, index="sums"), lake, until_caught_up=True)
    with pytest.raises(ConnectorError, match="DELIVERY-004 .*of totals_to_search"):
        deliver(bound(server.url, index="sums", name="another"), lake, until_caught_up=True)
    other = small_lake.make(tmp_path / "other")
    with pytest.raises(LifecycleError, match=f"LIFECYCLE-241 .*got lake {lake.root}"):
        deliver(bound(server.url, index="sums"), other, until_caught_up=True)
    assert totals(server, "sums") == {"a": 10, "b": 2}


def test_an_index_whose_name_begins_as_that_of_another_delivery_stays(
    lake: Lake, server: Server, tmp_path: Path
) -> None:
    other = small_lake.make(tmp_path / "other", times=2)
    deliver(bound(server.url, index="totals-eu"), other, until_caught_up=True)
    deliver(bound(server.url, index="totals-2024"), other, until_caught_up=True)
    deliver(bound(server.url), lake, until_caught_up=True)
    assert totals(server) == {"a": 10, "b": 2}
    assert totals(server, "totals-eu") == totals(server, "totals-2024") == {"a": 20, "b": 4}


def test_an_alias_of_somebody_that_has_the_name_of_the_next_index_is_refused(lake: Lake, server: Server) -> None:
    server.ask("PUT", "/theirs/_doc/1", {"mine": 1})
    alias = {"add": {"index": "theirs", "alias": "totals-000000"}}
    server.ask("POST", "/_aliases", {"actions": [alias]})
    with pytest.raises(ConnectorError, match=r"DELIVERY-004 .*got the alias totals-000000 of theirs.*index="):
        deliver(bound(server.url), lake, until_caught_up=True)
    assert search_server.documents(server.url, "theirs") == [{"mine": 1}]


def test_what_an_earlier_process_still_sends_is_refused(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    for hit in server.ask("GET", "/totals/_search")["hits"]["hits"]:
        path = f"/{hit['_index']}/_doc/{hit['_id']}?version=1000&version_type=external"
        server.ask("PUT", path, hit["_source"])
    small_lake.batch(lake, 2, [row("a", 11, 9)])
    with pytest.raises(LifecycleError, match="LIFECYCLE-240 .*of a later delivery"):
        deliver(bound(server.url), lake, until_caught_up=True)


def test_a_full_server_is_waited_for(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    server.ask("PUT", "/totals/_settings", {"index.blocks.read_only_allow_delete": True})
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    with pytest.raises(ConnectorError, match="DELIVERY-001 .*disk usage exceeded"):
        deliver(bound(server.url), lake, until_caught_up=True)
    server.ask("PUT", "/totals/_settings", {"index.blocks.read_only_allow_delete": None})
    deliver(bound(server.url), lake, until_caught_up=True)
    assert totals(server) == {"a": 10, "b": 2, "d": 4}


def test_a_document_that_the_server_refuses_is_named(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    (index,) = server.ask("GET", "/totals-*")
    mapping = server.ask("GET", f"/{index}/_mapping")[index]["mappings"]
    server.ask("DELETE", f"/{index}")
    mapping["dynamic"] = "strict"
    mapping["properties"]["key"]["fields"] = {"short": {"type": "keyword", "normalizer": "lowercase"}}
    mapping["properties"]["total"] = {"type": "long", "ignore_malformed": False, "coerce": False}
    mapping["properties"].pop("key")
    server.ask("PUT", f"/{index}", {"mappings": mapping, "aliases": {"totals": {}}})
    server.ask("PUT", f"/{index}/_settings", {"index.mapping.total_fields.limit": 1})
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    with pytest.raises(ConnectorError, match=r"DELIVERY-008 .*total fields.*floodmark restart totals_to_search"):
        deliver(bound(server.url), lake, until_caught_up=True)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"index": "Totals"}, "DEFINITION-411 .*lower-case"),
        ({"api_key": "secret"}, "DEFINITION-411 .*a reference to a key.*got a text"),
        ({"api_key": Env("KEY"), "user": "me"}, "DEFINITION-411 .*got both"),
        ({"user": "me"}, "DEFINITION-411 .*a user alone"),
        ({"password": "secret"}, "DEFINITION-339"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=error) as raised:
        ToSearch("https://search:9200", **settings)
    assert "secret:" not in str(raised.value)


def test_a_url_of_something_else_is_refused() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-411 .*redis"):
        ToSearch("redis://search:9200")
    with pytest.raises(DefinitionError, match="DEFINITION-298"):
        ToSearch("https://me:word@search:9200")
