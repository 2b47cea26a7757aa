"""The verb partitions, and runs of an asset partition by its name: on the embedded engine, in a workspace of a user's."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
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
    assert listed[-1] < f"{datetime.now(UTC):%Y-%m-%d}"


@pytest.mark.usefixtures("days")
def test_a_preview_says_what_a_run_would_do_and_nothing_is_written(verb: Verb, days: Path) -> None:
    words = ("run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    (made,) = told(verb, *words, "--preview")["previews"]
    assert made["partitions"] == {"missing": 3, "open": 1}
    assert (made["reads"]["files"], made["reads"]["rows"], made["replaces"]["files"]) == (1, 6, 0)
    assert (made["seconds"], made["past_runs"], made["crowded"]) == (None, 0, False)
    assert not (days / "lake" / "outputs").exists()
    shown = verb(*words, "--preview").output
    assert "3 missing, 1 not complete yet; duration not known, as no run is recorded on this engine" in shown
    assert "reads 1 file, 6 rows" in shown
    assert "writes: not known, as no run is recorded" in shown

    told(verb, "run", "hourly_sales", "--partition", DAYS[1])
    (made,) = told(verb, *words, "--preview")["previews"]
    assert made["partitions"] == {"missing": 2, "covered": 1, "open": 1}
    assert (made["past_runs"], made["reads"]["rows"]) == (1, 4)
    assert made["seconds"] > 0
    (forced,) = told(verb, *words, "--preview", "--force")["previews"]
    assert forced["replaces"]["rows"] == 2 * 2, "the changelog and the last values"


@pytest.mark.usefixtures("days")
def test_frozen_days_are_left_shown_and_thawed(verb: Verb, days: Path) -> None:
    told(verb, "run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[1]}")
    kept = told(verb, "freeze", "hourly_sales", "--before", DAYS[1], "--note", "reported")["frozen"]
    assert (kept["before"], kept["note"]) == ("2025-03-02T00:00:00Z", "reported")
    refused = verb("--json", "run", "hourly_sales", "--partition", DAYS[0], "--force")
    assert json.loads(refused.stdout)["error"]["code"] == "LIFECYCLE-201"
    told(verb, "run", "hourly_sales", "--partition", DAYS[1], "--force")
    assert "hourly_sales: results before 2025-03-02T00:00:00Z are frozen since" in verb("status").output
    words = ("run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[1]}", "--preview", "--force")
    (made,) = told(verb, *words)["previews"]
    assert made["partitions"] == {"covered": 1, "frozen": 1}
    picture = days / "coverage.svg"
    assert told(verb, "partitions", "hourly_sales", "--picture", str(picture))["frozen"] == kept
    drawn = picture.read_text()
    assert drawn.startswith("<svg ")
    assert [drawn.count(f"<title>{kind}</title>") for kind in ("frozen", "covered", "open")] == [1, 1, 1]

    thawed = told(verb, "thaw", "hourly_sales")
    assert (thawed["frozen"], thawed["left_out"]) == (None, 0)
    told(verb, "run", "hourly_sales", "--partition", DAYS[0], "--force")
    again = verb("--json", "thaw", "hourly_sales")
    assert json.loads(again.stdout)["error"]["code"] == "LIFECYCLE-203"


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize(
    ("budget", "code", "says"),
    [
        ("cores=0", "LIFECYCLE-204", "The least that works: cores=1"),
        ("memory=10,lag=1ms", "LIFECYCLE-204", "memory=256,lag=1 second"),
        ("cores", "LIFECYCLE-205", "Write it as cores=1"),
        ("cores=1,cores=2", "LIFECYCLE-205", "Write it as cores=1"),
        ("lag=soon", "DEFINITION-001", "soon"),
    ],
)
def test_a_budget_that_is_too_small_or_odd_is_refused(verb: Verb, budget: str, code: str, says: str) -> None:
    result = verb("--json", "run", "hourly_sales", "--partition", DAYS[0], "--budget", budget)
    error = json.loads(result.stdout)["error"]
    assert error["code"] == code
    assert says in json.dumps(error)


@pytest.mark.usefixtures("days")
def test_a_run_within_a_budget_computes_the_partitions_one_by_one(verb: Verb) -> None:
    words = (
        "run",
        "hourly_sales",
        "--partition",
        f"{DAYS[0]}...{DAYS[1]}",
        "--budget",
        "cores=1,memory=300,lag=1 hour",
    )
    done = verb(*words)
    assert done.exit_code == 0, done.output
    assert done.output.count("computing hourly_sales@") == 2


MANY = 'Expectation("column_values_to_be_between", column="cents", min_value=1, blocking=True, name="some")'
FEW = 'Expectation("column_values_to_be_between", column="orders", min_value=2, name="many")'
MISSING = 'Expectation("column_values_to_not_be_null", column="cent", name="absent")'


def expecting(shop: Path, *expectations: str) -> None:
    file = shop / "assets" / "orders.py"
    head, _, rest = file.read_text().partition("expectations=[")
    file.write_text(f"{head}expectations=[{', '.join(expectations)}]{rest.partition(']')[2]}")
    forget_modules()


@pytest.mark.feature("Z8")
def test_check_judges_partitions_by_hand_and_closes_and_releases_their_gates(verb: Verb, days: Path) -> None:
    expecting(days, MANY, FEW)
    told(verb, "run", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    result = verb("--json", "check", "hourly_sales", "--partition", f"{DAYS[0]}...{DAYS[2]}")
    document = json.loads(result.stdout)
    judged = {(one["partition"], one["check"]): (one["complete"], one["met"]) for one in document["checks"]}
    assert judged == {
        (DAYS[0], "some"): (True, False),
        (DAYS[0], "many"): (True, False),
        (DAYS[1], "some"): (True, True),
        (DAYS[1], "many"): (True, False),
        (DAYS[2], "some"): (False, True),
        (DAYS[2], "many"): (False, False),
    }, "the first order of the first day cost nothing"
    assert (result.exit_code, document["error"]["code"]) == (1, "EXECUTION-133")
    assert f"{DAYS[0]}: some: 1 of 2 rows, for example 0" in document["error"]["got"]
    gates = told(verb, "gate", "list", "hourly_sales")["gates"]
    assert [(one["partition"], one["check"]) for one in gates] == [(DAYS[0], "some")]

    expecting(days, MANY.replace("min_value=1", "min_value=0"), FEW)
    result = verb("check", "hourly_sales", "--partition", DAYS[0])
    assert (result.exit_code, "gate released: 2025-03-01" in result.output) == (0, True), result.output
    assert told(verb, "gate", "list", "hourly_sales")["gates"] == []
    assert all(one["partition"] == "all" for one in told(verb, "check", "hourly_sales")["checks"])


@pytest.mark.parametrize(
    ("words", "expectations", "code", "says"),
    [
        ((), (), "LIFECYCLE-303", "operator_asset(hourly_sales, expectations=[Expectation(...)])"),
        ((), (FEW,), "LIFECYCLE-304", "no table fix: Compute it first: floodmark run hourly_sales."),
        (("--partition", DAYS[2]), (FEW,), "LIFECYCLE-304", "floodmark run hourly_sales --partition 2025-03-03"),
        (("--partition", "2031-01-01"), (FEW,), "LIFECYCLE-190", "end (exclusive): 2025-03-04"),
        ((), (MISSING,), "DEFINITION-094", "Did you mean 'cents'?"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_next_step(
    verb: Verb, days: Path, words: tuple[str, ...], expectations: tuple[str, ...], code: str, says: str
) -> None:
    expecting(days, *expectations)
    if words == ("--partition", DAYS[2]):
        told(verb, "run", "hourly_sales", "--partition", DAYS[0])
    result = verb("check", "hourly_sales", *words)
    assert result.exit_code == 1, result.output
    assert code in result.stderr
    assert says in " ".join(result.stderr.split())
