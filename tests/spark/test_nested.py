"""Nested contracts: what is in a JSON document lands as structs, arrays and maps and is addressed in expressions, alike on both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasPath, BaseModel, Field
from stored import rows

from floodmark import (
    Ascending,
    Contract,
    EventTime,
    Files,
    JsonText,
    Rescued,
    Source,
    Stream,
    Tumbling,
    count,
    last,
    operator,
)
from floodmark import sum as total
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import DefinitionError
from floodmark.core.time import Interval
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake


class Address(BaseModel):
    city: str | None = None
    zip: int = 0


class User(BaseModel):
    name: str
    address: Address | None = None


class Event(Contract):
    at: EventTime = Field(validation_alias=AliasPath("meta", "created_at"))
    user: User | None = None
    tags: list[str] = Field(default_factory=list)
    labels: dict[str, int] = Field(default_factory=dict)
    homes: list[Address] = Field(default_factory=list)
    payload: JsonText | None = None
    others: Rescued


DOCUMENTS: list[dict[str, Any]] = [
    {"user": {"name": "a", "address": {"city": "Rome", "zip": 1}}, "tags": ["x", "y"], "labels": {"k": 5}},
    {"user": {"name": "b", "address": None}, "homes": [{"city": "Oslo"}], "payload": {"n": [1, 2]}},
    {"user": None, "labels": {"j": 1}, "payload": "text", "more": {"deep": True}},
    {"user": {"name": "c", "address": {"zip": 9}}, "tags": ["z"], "labels": {"k": 7}, "payload": 3, "note": "é"},
]


@operator
def flat(events: Stream[Event]) -> Stream:
    """Each way to address a part."""
    return events.select(
        "user",
        "labels",
        "homes",
        city="user.address.city",
        zip="user.address.zip",
        nobody="user IS NULL",
        tag="CASE WHEN size(tags) > 0 THEN tags[0] END",
        k="labels['k']",
        home="get(homes, 0).city",
        n="get_json_object(payload, '$.n[1]')",
        deep="get_json_object(others, '$.more.deep')",
    )


@operator
def by_city(events: Stream[Event]) -> Stream:
    """A part as a key, a struct as a result."""
    keyed = events.with_columns(city="user.address.city").key_by("city")
    return keyed.window(Tumbling("1 day")).aggregate(n=count(), newest=last("user"), k=total("labels['k']"))


def source(folder: Path) -> Source:
    lines = [
        json.dumps({"meta": {"created_at": f"2024-01-01T0{n}:00:00Z"}, **document})
        for n, document in enumerate(DOCUMENTS)
    ]
    broken = '{"meta": {}, "user": {"address": {"zip": "x"}}}'
    folder.mkdir()
    (folder / "a.jsonl").write_text("\n".join([*lines, broken]) + "\n")
    return Source("events", contract=Event, connector=Files(str(folder)), watermark=Ascending())


def address(city: str | None, zip_code: int) -> dict[str, Any]:
    return {"city": city, "zip": zip_code}


@pytest.mark.parametrize("mode", ["bounded", pytest.param("unbounded", marks=pytest.mark.soak)])
def test_documents_land_as_they_are_and_their_parts_are_addressed(
    engine: Computing, lake: Lake, tmp_path: Path, mode: str
) -> None:
    landed = engine.land(source(tmp_path / "in"), lake, end=True)
    assert (landed.rows, landed.quarantined) == (4, 1)
    (entry,) = quarantine.show("events", lake).newest
    assert entry.reason == (
        "meta.created_at: expected a value, got nothing; user.name: expected a value, got nothing; "
        "user.address.zip: expected a valid integer, got 'x'"
    )
    stored = [row for row in rows(lake.log("events"), "_sequence") if row._kind == 0]
    assert [row.payload for row in stored] == [None, '{"n": [1, 2]}', "text", "3"]
    assert [row.others for row in stored] == [None, None, '{"more": {"deep": true}}', '{"note": "é"}']
    for one in (flat, by_city):
        if mode == "bounded":
            engine.run_bounded(one, lake, Interval())
        else:
            engine.run_unbounded(one, lake, until_caught_up=True)
    found = [row for row in rows(lake.output("flat"), "_event_time") if row._kind == 0]
    assert [row.user for row in found] == [
        {"name": "a", "address": address("Rome", 1)},
        {"name": "b", "address": None},
        None,
        {"name": "c", "address": address(None, 9)},
    ]
    assert [row.labels for row in found] == [[("k", 5)], [], [("j", 1)], [("k", 7)]]
    assert [row.homes for row in found] == [[], [address("Oslo", 0)], [], []]
    assert [(row.city, row.zip, row.nobody) for row in found] == [
        ("Rome", 1, False), (None, None, False), (None, None, True), (None, 9, False),
    ]  # fmt: skip
    assert [(row.tag, row.k, row.home, row.n, row.deep) for row in found] == [
        ("x", 5, None, None, None), (None, None, "Oslo", "2", None), (None, None, None, None, "true"), ("z", 7, None, None, None),
    ]  # fmt: skip
    windows = [row for row in rows(lake.output("by_city"), "n") if row._kind == 0]
    assert [(row.city, row.n, row.k, (row.newest or {}).get("name")) for row in windows] == [
        ("Rome", 1, 5, "a"),
        (None, 3, 7, "c"),
    ]


def test_what_no_table_holds_is_refused_with_a_way_out() -> None:
    with pytest.raises(DefinitionError) as caught:

        class _Loose(Contract, event_time="ingestion"):
            anything: dict

    assert caught.value.code == "DEFINITION-011"
    assert caught.value.got == "dict"
    assert "JsonText" in caught.value.fix


def test_parts_that_differ_only_in_case_are_refused() -> None:
    class _Twice(BaseModel):
        a: int
        A: int

    with pytest.raises(DefinitionError, match=r"DEFINITION-144 .*field 'part': expected names .* got a and A"):

        class _Alike(Contract, event_time="ingestion"):
            part: _Twice


def test_one_field_keeps_what_is_unknown() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-151"):

        class _Both(Contract, event_time="ingestion"):
            one: Rescued
            other: Rescued
