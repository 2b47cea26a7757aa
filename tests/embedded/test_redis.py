"""``ToRedis``: keys have the last values, exactly once, whatever is killed, taken back or computed anew; and what is wrong with a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis_server
import small_lake
from delivery_schedule import Schedule, delivered, process, results
from redis_server import Server
from small_lake import TOTALS, row
from streams import PLAIN, WINDOWED

from floodmark import Env, ToRedis
from floodmark.core import crash
from floodmark.core.errors import ConnectorError, DefinitionError, LifecycleError
from floodmark.deliveries.results import Selection
from floodmark.deliveries.run import Delivery, deliver
from floodmark.deliveries.sink import Change
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import RETRACTION

SOAKED = [(code, seed) for seed in range(2, 52) for code in (WINDOWED, PLAIN)]
ALL = [
    pytest.param(WINDOWED, 1, marks=pytest.mark.feature("D5")),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in SOAKED),
]

EACH = {"delivery.after_batch", "delivery.before_commit", "delivery.after_commit"}
"""Points of every run: with commands in a MULTI, behind the position, behind EXEC."""
POINTS = [point if point in EACH else pytest.param(point, marks=pytest.mark.soak) for point in crash.POINTS["delivery"]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server of all tests of this module."""
    with redis_server.server() as started:
        yield started


@pytest.fixture
def server(shared: Server) -> Server:
    """A server without keys."""
    shared.client().flushall()
    return shared


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


def bound(url: Any, **settings: Any) -> Route:
    """The delivery of the results."""
    return routes(TOTALS, [ToRedis(url, **settings)], "test")[0]


def totals(server: Server, prefix: str = "totals") -> dict[Any, int]:
    """key -> total."""
    return {one["key"]: one["total"] for one in redis_server.rows(server.url, prefix)}


@pytest.mark.feature("Z28")
@pytest.mark.parametrize(("code", "seed"), ALL)
def test_keys_have_the_last_values_after_each_step(
    sail: Sail, server: Server, code: Operator, seed: int, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    schedule, killed = Schedule(sail, code, lake, seed), 0
    for _ in range(4 if seed == 1 else 8):
        schedule.draw()
        killed += schedule.deliver("redis", server.url, kills=1 if seed == 1 else 2)
        rows = redis_server.rows(server.url, code.name)
        assert delivered(rows, schedule.code) == results(lake, schedule.code), schedule.done
    assert killed


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.few(1)
def test_a_kill_at_a_point_leaves_all_of_a_delivery_or_nothing(lake: Lake, server: Server, point: str) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8), row("a", 11, 9)])
    process(lake, TOTALS, "redis", server.url, at=point)
    assert totals(server) in ({"a": 10, "b": 2}, {"a": 11, "d": 4})
    assert process(lake, TOTALS, "redis", server.url) == 0
    assert totals(server) == {"a": 11, "d": 4}


def test_a_server_that_is_killed_has_what_it_had_and_the_position(lake: Lake, tmp_path: Path) -> None:
    with redis_server.server() as own:
        deliver(bound(own.url), lake, until_caught_up=True)
        own.stop(kill=True)
        small_lake.batch(lake, 2, [row("d", 4, 8)])
        with pytest.raises(ConnectorError, match="DELIVERY-001 delivery 'totals_to_redis'"):
            deliver(bound(own.url), lake, until_caught_up=True)
        own.start()
        deliveries: list[Delivery] = []
        deliver(bound(own.url), lake, until_caught_up=True, on_delivery=deliveries.append)
        assert totals(own) == {"a": 10, "b": 2, "d": 4}
        assert [(one.rows, one.whole) for one in deliveries] == [(1, False)]


def test_what_a_server_has_lost_is_delivered_anew(lake: Lake, server: Server) -> None:
    stop, deliveries = threading.Event(), list[Delivery]()

    def on_delivery(delivery: Delivery) -> None:
        deliveries.append(delivery)
        if len(deliveries) == 1:
            server.client().flushall()
            small_lake.batch(lake, 2, [row("d", 4, 8)])
        else:
            stop.set()

    deliver(bound(server.url), lake, stop=stop, on_delivery=on_delivery)
    assert totals(server) == {"a": 10, "b": 2, "d": 4}
    assert deliveries[-1].whole


def test_keys_of_others_are_not_touched(lake: Lake, server: Server) -> None:
    client = server.client()
    client.set("totals:mine", "1")
    with pytest.raises(ConnectorError, match=r"DELIVERY-004 .*prefix 'totals'.*prefix="):
        deliver(bound(server.url), lake, until_caught_up=True)
    client.set("su[m]*:other", "1")
    deliver(bound(server.url, prefix="su[m]?"), lake, until_caught_up=True)
    assert client.get("totals:mine") == client.get("su[m]*:other") == b"1"
    with pytest.raises(ConnectorError, match="DELIVERY-004 .*those of delivery 'totals_to_redis'"):
        deliver(bound(server.url, prefix="su[m]?", name="another"), lake, until_caught_up=True)


def test_keys_that_others_write_later_stay_when_all_is_delivered_anew(lake: Lake, server: Server) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    deliver(bound(server.url, prefix="totals:eu", name="eu"), lake, until_caught_up=True)
    client = server.client()
    client.set("totals:mine", "1")
    client.delete("_floodmark:totals_to_redis")
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    deliver(bound(server.url), lake, until_caught_up=True)
    assert client.get("totals:mine") == b"1"
    assert totals(server, "totals:eu") == {"a": 10, "b": 2}
    client.delete("totals:mine", *client.keys("totals:eu:*"))
    assert totals(server) == {"a": 10, "d": 4}


def test_a_file_that_goes_while_it_is_read_leads_to_all_results(
    lake: Lake, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(bound(server.url), lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    changes, deliveries = Selection.changes, list[Delivery]()

    def gone(_: Selection) -> Iterator[list[Change]]:
        monkeypatch.setattr(Selection, "changes", changes)
        yield []
        raise FileNotFoundError

    monkeypatch.setattr(Selection, "changes", gone)
    deliver(bound(server.url), lake, until_caught_up=True, on_delivery=deliveries.append)
    assert totals(server) == {"a": 10, "d": 4}
    assert [one.whole for one in deliveries] == [True]


def test_another_process_of_the_delivery_is_told_apart(lake: Lake, server: Server, tmp_path: Path) -> None:
    other = small_lake.make(tmp_path / "other")
    deliver(bound(server.url), lake, until_caught_up=True)
    with pytest.raises(LifecycleError, match=f"LIFECYCLE-241 delivery 'totals_to_redis': .*got lake {lake.root}"):
        deliver(bound(server.url), other, until_caught_up=True)
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    client, position = server.client(), "_floodmark:totals_to_redis"

    def overtake(_: Delivery) -> None:
        client.set(position, client.get(position).replace(b'\\"number\\":1', b'\\"number\\":7'))
        small_lake.batch(lake, 3, [row("e", 5, 9)])

    with pytest.raises(LifecycleError, match="LIFECYCLE-240 delivery 'totals_to_redis': .*delivery 7"):
        deliver(bound(server.url), lake, until_caught_up=True, on_delivery=overtake)


def test_a_server_that_is_full_is_waited_for_and_has_nothing_of_the_delivery(lake: Lake) -> None:
    with redis_server.server("--maxmemory", "3mb") as full:
        client = full.client()
        for number in range(10_000):
            try:
                client.set(f"other:{number}", "x" * 1_000)
            except Exception:  # noqa: BLE001 - full
                break
        with pytest.raises(ConnectorError, match="DELIVERY-001 .*maxmemory"):
            deliver(bound(full.url), lake, until_caught_up=True)
        assert totals(full) == {}
        client.config_set("maxmemory", "0")
        deliver(bound(full.url), lake, until_caught_up=True)
        assert totals(full) == {"a": 10, "b": 2}


def test_servers_that_cannot_hold_results_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    evicting = redis_server.server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    refused = pytest.raises(ConnectorError, match="DELIVERY-003 .*evicts no results.*allkeys-lru")
    with evicting as server, refused:
        deliver(bound(server.url), lake, until_caught_up=True)
    with redis_server.server("--requirepass", "s3cret") as guarded:
        with pytest.raises(ConnectorError, match="DELIVERY-001 .*authenticate"):
            deliver(bound(guarded.url), lake, until_caught_up=True)
        monkeypatch.setenv("CACHE_PASSWORD", "s3cret")
        deliver(bound(guarded.url, password=Env("CACHE_PASSWORD")), lake, until_caught_up=True)
    monkeypatch.setenv("CACHE_URL", "http://cache")
    with pytest.raises(ConnectorError, match="DELIVERY-003 .*redis://cache:6379/0"):
        deliver(bound(Env("CACHE_URL")), lake, until_caught_up=True)


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"url": "cache:6379"}, {"url": "sqlite://x"}, {"url": "redis://x", "prefix": "_floodmark:x"}):
        with pytest.raises(DefinitionError, match=r"DEFINITION-(338|410) ToRedis"):
            ToRedis(**wrong)
    with pytest.raises(DefinitionError, match="DEFINITION-298"):
        ToRedis("redis://me:hunter2@cache/0")


def test_odd_keys_are_keys(lake: Lake, server: Server) -> None:
    small_lake.batch(lake, 2, [row(None, 5, 7), row("ключ:*?[", 6, 8), row("", 7, 9)])
    deliver(bound(server.url), lake, until_caught_up=True)
    assert totals(server) == {"a": 10, "b": 2, None: 5, "ключ:*?[": 6, "": 7}
    start = '"window_start":"2020-01-01T00:00:00Z","window_end":"2020-01-01T00:00:00Z"'
    assert server.client().get(f'totals:{{"key":null,{start}}}') is not None
