"""What dry runs of verbs say; it is what the verbs then do. No JVM starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_lake import TOTALS, batch, make, row

from floodmark import Operator, Stream, Tumbling, count, operator
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.restore import savepoints
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.switch import Switchover

from .conftest import Verb

CHANGED = '''
from events import Event, row, source

from floodmark import Stream, Tumbling, Workspace, count, operator, sum


@operator
def totals(events: Stream[Event]) -> Stream:
    """The windows are twice as long now: open ones cannot go on."""
    windowed = events.key_by("key").window(Tumbling("20 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


def workspace(environment: str = "dev") -> Workspace:
    from resources.settings import settings

    return Workspace(sources=[source([row(1)])], operators=[totals], settings=settings(environment))
'''


@pytest.fixture
def lake(shop: Path, tmp_path: Path) -> Lake:
    (shop / "definitions" / "__init__.py").write_text(CHANGED)
    return make(tmp_path / "lake")


def test_a_dry_run_of_a_rebuild_says_what_a_rebuild_would_do(verb: Verb, lake: Lake) -> None:
    there = ("apply", "totals", "--dry-run", "--lake", lake.root)
    assert verb(*there).stderr.startswith("PLAN-011"), "without --rebuild it cannot be applied"
    would = verb(*there, "--rebuild")
    assert would.exit_code == 0, would.stderr
    assert f"{TOTALS.version} -> totals@" in would.stdout
    assert (
        "--rebuild computes all of it anew beside the stream, and replaces state and tables in one switch"
        in would.stdout
    )
    assert "it can be applied" not in would.stdout


def _begin(lake: Lake, reader: Operator) -> None:
    """A stream that has committed a micro-batch."""
    timeline = Timeline.current(lake, reader.name)
    timeline.identity.deploy(reader)
    write(f"{timeline.checkpoint.path}/commits/0", b'v1\n{"nextBatchWatermarkMs":0}')


def test_plans_and_dry_runs_of_a_rebuild_say_what_becomes_of_each_reader(verb: Verb, lake: Lake) -> None:
    def counts(totals: Stream) -> Stream:
        return totals.key_by("key").rolling(results=count())

    def hours(totals: Stream) -> Stream:
        return totals.key_by("key").window(Tumbling("1 hour"), allowed_lateness="1 hour").aggregate(results=count())

    asked = ("apply", "totals", "--rebuild", "--dry-run", "--lake", lake.root)
    _begin(lake, operator(counts, inputs={"totals": TOTALS}))
    would, planned = verb(*asked).stdout, verb("plan", "totals", "--lake", lake.root).stdout
    assert "  counts would follow as a difference: rows that are taken back and new rows\n" in would
    assert "append to totals, in one commit, what changes in it, which counts@" in would
    assert "  streams that read it and follow a rebuild as a difference: counts\n" in planned
    _begin(lake, operator(hours, inputs={"totals": TOTALS}))
    would, planned = verb(*asked).stdout, verb("plan", "totals", "--lake", lake.root).stdout
    because = "because 'hours' cannot: results of step 'hours' depend on event time"
    for name in ("counts", "hours"):
        assert f"  {name} would have read what is replaced, and would have to be computed anew, {because}\n" in would
    assert f"have to be computed anew behind a rebuild, {because}: counts, hours\n" in planned
    (applied,) = json.loads(verb(*asked, "--json").stdout)["applied"]
    assert (applied["readers"], applied["followers"]) == (["counts", "hours"], [])


def test_a_dry_run_of_a_rebuild_is_refused_as_the_rebuild_would_be(verb: Verb, lake: Lake) -> None:
    write(
        lake.internal("switch.json"),
        Switchover(again="floodmark rollback others --to x", targets=()).as_json().encode(),
    )
    refused = verb("apply", "totals", "--dry-run", "--rebuild", "--lake", lake.root)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("LIFECYCLE-034")
    assert f"Finish it: floodmark --lake {lake.root} rollback others --to x" in refused.stderr


def test_a_dry_run_of_a_rebuild_that_was_begun_says_that_it_would_be_finished(verb: Verb, lake: Lake) -> None:
    again = "floodmark apply totals --rebuild"
    write(lake.internal("switch.json"), Switchover(again=again, targets=(), back="totals-1").as_json().encode())
    would = verb("apply", "totals", "--dry-run", "--rebuild", "--json", "--lake", lake.root)
    (applied,) = json.loads(would.stdout)["applied"]
    assert applied["savepoint"] == "totals-1"


@pytest.mark.parametrize("what", ["apply", "rollback", "move"])
def test_a_verb_takes_the_steps_that_its_dry_run_has_listed(verb: Verb, shop: Path, tmp_path: Path, what: str) -> None:
    wider = CHANGED.replace('"20 minutes"', '"10 minutes"').replace(
        'total=sum("value"))', 'total=sum("value")).with_columns(double="total * 2")'
    )
    (shop / "definitions" / "__init__.py").write_text(wider)
    lake = make(tmp_path / "lake")
    made = savepoints.create("totals", lake).manifest.id
    batch(lake, 2, [row("b", 7, 7)])
    about = {"apply": (), "rollback": ("--to", made), "move": ("--into", str(tmp_path / "other"))}
    asked = (what, "totals", *about[what], "--lake", lake.root, "--json")
    files = sorted(tmp_path.rglob("lake/**/*"))
    would = verb(*asked, "--dry-run")
    assert would.exit_code == 0, would.stderr
    assert sorted(tmp_path.rglob("lake/**/*")) == files, "nothing has changed"
    done = verb(*asked)
    assert done.exit_code == 0, done.stderr
    listed, taken = (_steps(json.loads(one.stdout)) for one in (would, done))
    assert listed == taken
    kinds = {
        "apply": ["save", "define", "widen"],
        "rollback": ["restore_state", "restore_table", "restore_values", "restore_table", "make_current"],
        "move": ["save", "leave", "fork", "fence"],
    }
    assert [step["step"] for step in listed] == kinds[what]
    text = verb(what, "totals", *about[what], "--lake", lake.root, "--dry-run").stdout
    assert what == "apply" or f"  1. {'put back' if what == 'rollback' else 'fence'}" in text


def _steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = document["steps"] if "steps" in document else document["applied"][0]["steps"]
    return steps
