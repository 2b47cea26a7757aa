"""What ``apply --dry-run`` says of a stream whose code has changed. No JVM starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_lake import TOTALS, make

from floodmark.lake.paths import Lake
from floodmark.lake.storage import write
from floodmark.lifecycle.switch import Switch

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


def test_a_dry_run_of_a_rebuild_is_refused_as_the_rebuild_would_be(verb: Verb, lake: Lake) -> None:
    write(lake.internal("switch.json"), Switch(again="floodmark rollback others --to x", steps=()).as_json().encode())
    refused = verb("apply", "totals", "--dry-run", "--rebuild", "--lake", lake.root)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("LIFECYCLE-034")
    assert "Finish it: floodmark rollback others --to x" in refused.stderr


def test_a_dry_run_of_a_rebuild_that_was_begun_says_that_it_would_be_finished(verb: Verb, lake: Lake) -> None:
    again = "floodmark apply totals --rebuild"
    write(lake.internal("switch.json"), Switch(again=again, steps=(), back="totals-1").as_json().encode())
    would = verb("apply", "totals", "--dry-run", "--rebuild", "--json", "--lake", lake.root)
    (applied,) = json.loads(would.stdout)["applied"]
    assert applied["savepoint"] == "totals-1"
