"""The verb ``run`` on the embedded engine: in a workspace of a user's, on a machine without Java."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from floodmark.engines.embedded.sail import server
from floodmark.engines.spark.setup import java
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.schema import MARKER
from floodmark.testing import lakes
from floodmark.testing.log import Log

from .conftest import Verb, forget_modules


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def none():
        raise AssertionError("Java was looked for")

    monkeypatch.setattr(java, "find_java", none)


def landed(shop: Path) -> None:
    """Six orders in the log of the shop."""
    sys.path.insert(0, str(shop))
    from operators.orders import hourly_sales

    log, nine = Log(hourly_sales.inputs[0].schema), datetime(2024, 1, 1, 9)
    rows = [
        {"ordered_at": nine + timedelta(minutes=20 * n), "order_id": n, "country": "NL", "items": 1, "cents": n}
        for n in range(6)
    ]
    log.rows([row | {"voucher": None} for row in rows], "ordered_at", 0)
    log.end()
    lakes.land(Lake(str(shop / "lake")), hourly_sales, log)


@pytest.mark.usefixtures("no_java")
def test_a_bounded_run_needs_no_java(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landed(shop)
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    result = verb("run", "hourly_sales", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"]["hourly_sales"] == 2
    again = verb("run", "hourly_sales", "--engine", "embedded")
    assert "nothing to do" in again.stdout


@pytest.mark.usefixtures("no_java")
def test_the_stream_of_a_new_workspace_has_the_rows_of_its_bounded_run(verb: Verb, shop: Path) -> None:
    landed(shop)
    assert verb("run", "hourly_sales", "--engine", "embedded").exit_code == 0
    bounded = sold(shop)
    assert of_hourly_sales(verb) == {("bounded", "embedded")}
    result = verb("run", "hourly_sales", "--unbounded", "--until-caught-up", "--engine", "embedded", "--json")
    assert result.exit_code == 0, result.output
    assert sold(shop) == bounded
    assert ("unbounded", "embedded") in of_hourly_sales(verb)
    assert {row["_asset_partition"] for row in bounded} == {"2024-01-01"}
    assert sold(shop, "hourly_sales__current") == [row | {"_kind": 0} for row in bounded]


@pytest.mark.usefixtures("no_java")
def test_prove_kills_the_stream_and_compares_it_with_a_bounded_run(verb: Verb, shop: Path) -> None:
    landed(shop)
    result = verb("prove", "hourly_sales", "--cuts", "1", "--embedded", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    killed = found["embedded"]
    assert killed["killed_at"].startswith("embedded.")
    assert (killed["results"], killed["differences"]) == (found["results"], [])
    assert found["results"]


def of_hourly_sales(verb: Verb) -> set[tuple[str, str]]:
    """Mode and engine of the outputs, as the status says them."""
    tables = json.loads(verb("status", "--json").stdout)["tables"]
    return {(row["mode"], row["engine"]) for row in tables if row["name"] == "hourly_sales"}


def sold(shop: Path, table: str = "hourly_sales") -> list[dict[str, object]]:
    """Rows without markers, and without what differs between two runs."""
    rows = DeltaTable(str(shop / "lake" / "outputs" / table)).to_pyarrow_table()
    rows = rows.drop_columns(["_progress", "_sequence", "_ingest_time"])
    return sorted((row for row in rows.to_pylist() if row["_kind"] != MARKER), key=repr)


@pytest.mark.usefixtures("no_java")
def test_landing_and_its_quarantine_need_no_java(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    result = verb("land", "orders", "--json")
    assert result.exit_code == 0, result.output
    (landed,) = json.loads(result.stdout)["sources"]
    waiting = json.loads(verb("quarantine", "show", "orders", "--json").stdout)
    assert waiting["rows"] == landed["quarantined"] > 0
    again = verb("quarantine", "replay", "orders")
    assert again.exit_code == 0, again.output
    assert f"0 landed (0 of them late), {waiting['rows']} still broken" in again.stdout


def test_without_pysail_the_command_that_installs_it_is_said(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(shop)
    monkeypatch.setattr(server, "_version", lambda _: None)
    result = verb("run", "hourly_sales", "--engine", "embedded")
    assert result.exit_code == 1
    assert "SETUP-070" in result.output
    assert "pip install pysail==" in result.output


def test_another_engine_is_refused(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (shop / "resources" / "settings.py").read_text("utf-8")
    (shop / "resources" / "settings.py").write_text(text.replace("engine=variables.engine", 'engine="flink"'), "utf-8")
    result = verb("plan")
    assert result.exit_code == 1
    assert "SETUP-072" in result.output


@pytest.mark.usefixtures("no_java")
def test_plan_says_and_apply_refuses_what_the_engine_does_not_run(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(shop)
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up").exit_code == 0
    before = json.loads(verb("plan", "hourly_sales", "--json").stdout)["plans"][0]
    assert (before["verdict"], before["refusal"]) == ("no-op", None)

    code = shop / "operators" / "orders.py"
    code.write_text(
        code.read_text("utf-8").replace(".key_by(", ".filter(\"initcap(country) <> 'De'\").key_by(", 1), "utf-8"
    )
    forget_modules()
    planned = json.loads(verb("plan", "hourly_sales", "--json").stdout)["plans"][0]
    assert planned["verdict"] == "forward-only"
    assert planned["refusal"].startswith("CAPABILITY-031 operator 'hourly_sales'")
    said = verb("plan", "hourly_sales").stdout
    assert "does not run hourly_sales@" in said
    assert "floodmark apply" not in said
    for way in (["--forward-only"], ["--rebuild"], ["--forward-only", "--dry-run"], ["--rebuild", "--dry-run"]):
        result = verb("apply", "hourly_sales", *way)
        assert (result.exit_code, "CAPABILITY-031" in result.output) == (1, True), result.output
    assert json.loads(verb("plan", "hourly_sales", "--json").stdout)["plans"][0]["deployed"] == before["deployed"]
    assert json.loads(verb("savepoint", "list", "--json").stdout)["savepoints"] == []
