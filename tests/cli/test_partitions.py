"""The verb partitions, and runs of an asset partition by its name: on the embedded engine, in a workspace of a user's."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from floodmark.core.time import to_ms
from floodmark.observe.partitions import passed
from floodmark.spec.windowing.partitions import Daily, Hourly, named

from .conftest import Verb, forget_modules

DAYS = ("2025-03-01", "2025-03-02", "2025-03-03")


@pytest.fixture
def days(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop with three asset partitions, and a log whose watermark has passed two of them."""
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    file = shop / "assets" / "orders.py"
    file.write_text(file.read_text().replace('end="2025-03-02"', 'end="2025-03-04"'))
    inbox = shop / "inbox" / "orders"
    for shipped in inbox.iterdir():
        shipped.unlink()
    start = datetime(2025, 3, 1, 9)
    lines = [f"{start + timedelta(hours=12 * n):%Y-%m-%dT%H:%M}:00Z,{n},NL,1,{n}," for n in range(6)]
    (inbox / "orders.csv").write_text("\n".join(["ordered_at,order_id,country,items,cents,voucher", *lines]) + "\n")
    assert verb("land", "orders").exit_code == 0
    forget_modules()
    return shop


def told(verb: Verb, *words: str) -> dict[str, Any]:
    result = verb("--json", *words)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.usefixtures("days")
def test_a_partition_is_complete_once_it_is_computed_or_passed_and_its_input_cannot_lack_rows(verb: Verb) -> None:
    assert told(verb, "partitions", "hourly_sales")["partitions"] == []
    told(verb, "run", "hourly_sales", "--partition", DAYS[1])
    (second,) = told(verb, "partitions", "hourly_sales")["partitions"]
    assert second == {"key": DAYS[1], "start": "2025-03-02T00:00:00Z", "end": "2025-03-03T00:00:00Z", "by": "bounded"}
    asked = told(verb, "partitions", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    assert (asked["complete"], asked["missing"]) == (False, [DAYS[0], DAYS[2]])

    told(verb, "run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    asked = told(verb, "partitions", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    assert asked["missing"] == [DAYS[2]], "computed, but rows of its evening may still land"
    assert told(verb, "partitions", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[1]}")["complete"]
    assert [one["key"] for one in told(verb, "partitions", "hourly_sales", "--after", DAYS[0])["partitions"]] == [
        DAYS[1]
    ]
    shown = told(verb, "partitions", "hourly_sales", "--limit", "1")
    assert ([one["key"] for one in shown["partitions"]], shown["more"]) == ([DAYS[0]], True)


@pytest.mark.usefixtures("days")
def test_a_stream_completes_partitions_too(verb: Verb) -> None:
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up").exit_code == 0
    listed = told(verb, "partitions", "hourly_sales")["partitions"]
    assert [(one["key"], one["by"]) for one in listed] == [(DAYS[0], "stream"), (DAYS[1], "stream")]


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "hourly_sales", "--partition", "2025-03-09"), "LIFECYCLE-190", "end (exclusive): 2025-03-04"),
        (("run", "hourly_sales", "--partition", "2025-03-01T06:00"), "LIFECYCLE-190", "the partition is 2025-03-01"),
        (("run", "hourly_sales", "--partition", "yesterday"), "LIFECYCLE-002", "yesterday"),
        (("run", "hourly_sales", "--partition", f"{DAYS[2]}...{DAYS[0]}"), "LIFECYCLE-001", "2025-03"),
        (("run", "hourly_sales", "--partition", DAYS[0], "--from", DAYS[0]), "USAGE", "leave out --from"),
        (("run", "hourly_sales", "--partition", DAYS[0], "--unbounded"), "USAGE", "means nothing for an unbounded"),
        (("partitions", "hourly_sales", "--partition", DAYS[0], "--after", DAYS[0]), "USAGE", "leave out --after"),
        (("partitions", "sales"), "DEFINITION-074", "hourly_sales"),
    ],
)
def test_what_names_no_partition_is_refused(verb: Verb, words: tuple[str, ...], code: str, says: str) -> None:
    result = verb("--json", *words)
    assert result.exit_code
    error = json.loads(result.stdout.strip().splitlines()[-1])["error"]
    assert error["code"] == code
    assert says in json.dumps(error)


def test_an_operator_without_partitions_says_how_to_get_some(verb: Verb, shop: Path) -> None:
    file = shop / "assets" / "orders.py"
    lines = [line for line in file.read_text().splitlines() if "partitions=" not in line]
    file.write_text("\n".join(lines))
    result = verb("--json", "run", "hourly_sales", "--partition", DAYS[0])
    assert json.loads(result.stdout)["error"]["code"] == "LIFECYCLE-189"


def test_a_partition_is_named_as_floodmark_dagster_and_airflow_write_it() -> None:
    hours = Hourly("2025-03-30T00:00", timezone="Europe/Berlin")
    six = to_ms(datetime(2025, 3, 30, 4))  # the clocks have gone on
    for text in ("2025-03-30T0400Z", "2025-03-30-06:00", "2025-03-30T06:00:00", "2025-03-30T06:00+02:00"):
        assert named(hours, text, "--partition").start == six, text
    days = Daily("2025-03-01", timezone="Europe/Berlin")
    assert named(days, "2025-03-30T00:00:00", "--partition") == named(days, "2025-03-30", "--partition")
    assert (
        named(days, "2025-03-30", "--partition").end - named(days, "2025-03-30", "--partition").start == 23 * 3_600_000
    )


def test_a_stream_that_has_ended_passes_no_partition_of_the_future() -> None:
    open_ended = Daily("2025-03-01")
    listed = [name for name, _ in passed(open_ended, to_ms(datetime(2025, 3, 1)), 253_402_300_799_999)]
    assert listed[0] == "2025-03-01"
    assert listed[-1] < f"{datetime.now():%Y-%m-%d}"
