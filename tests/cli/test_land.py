"""``floodmark land`` of several sources: each lands, or is named with what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Verb

ASSETS = """
from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Source


class Event(Contract):
    at: EventTime


sources = [
    Source(name, contract=Event, connector=Files(f"inbox/{name}"), watermark=BoundedOutOfOrderness("1 minute"))
    for name in ("first", "second", "third")
]
first, second, third = sources
"""


@pytest.fixture
def inbox(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of three sources with one file each; that of the second is still being written, by its name."""
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    (shop / "assets" / "orders.py").write_text(ASSETS)
    (shop / "operators" / "orders.py").write_text("")
    for name in ("first", "second", "third"):
        folder = shop / "inbox" / name
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text("at\n2020-01-01T00:00:00Z\n")
    (shop / "inbox" / "second" / "b.csv.part").write_text("at\n")
    return shop / "inbox"


def test_sources_that_are_complete_end_and_the_others_are_named(verb: Verb, inbox: Path) -> None:
    result = verb("land", "--all", "--end")
    assert result.exit_code == 1
    assert "first: 1 rows in 2 commits" in result.stdout
    assert "third: 1 rows in 2 commits" in result.stdout
    assert "second: LIFECYCLE-185" in result.stdout
    assert "1 unfinished by its name: b.csv.part" in result.stdout
    assert "LIFECYCLE-187 land\n  expected: all 3 sources to land\n  got:      2; not second\n" in result.stderr
    assert "floodmark land second --end" in result.stderr
    (inbox / "third" / "late.csv").write_text("at\n2020-01-01T00:00:00Z\n")
    result = verb("land", "--all", "--end", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [source["source"] for source in document["sources"]] == ["first"]
    assert {name: error["code"] for name, error in document["errors"].items()} == {
        "second": "LIFECYCLE-185",
        "third": "LIFECYCLE-011",
    }
    assert document["error"]["code"] == "LIFECYCLE-187"


def test_the_error_of_the_only_source_is_that_of_the_verb(verb: Verb, inbox: Path) -> None:
    result = verb("land", "second", "--end", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["error"]["code"] == "LIFECYCLE-185"
    (inbox / "second" / "b.csv.part").rename(inbox / "second" / "b.csv")
    assert json.loads(verb("land", "second", "--end", "--wait", "1 minute", "--json").stdout)["sources"][0]["ended"]


def test_a_wait_without_an_end_means_nothing(verb: Verb, inbox: Path) -> None:
    result = verb("land", "second", "--wait", "1 minute")
    assert result.exit_code == 2
    assert "--wait means nothing without --end" in result.stderr
    result = verb("land", "second", "--end", "--wait", "-1 minute")
    assert result.exit_code == 1
    assert "DEFINITION-004 --wait\n  expected: zero or more" in result.stderr
