"""Mistakes at a first workspace's keyboard and in its files: one error with a fix, no traceback, no row lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floodmark.lake.results import readiness
from floodmark.spec.windowing.partitions import split

from .conftest import Verb, forget_modules


def edit(shop: Path, file: str, old: str, new: str) -> None:
    text = (shop / file).read_text("utf-8")
    assert text.count(old) == 1
    (shop / file).write_text(text.replace(old, new), "utf-8")


def test_init_never_writes_into_a_folder_with_files_by_a_detour(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine", "utf-8")
    result = verb("init", "mine/new/..")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"LIFECYCLE-020 folder {tmp_path / 'mine'}\n")
    assert (tmp_path / "mine" / "README.md").read_text("utf-8") == "mine"
    assert not (tmp_path / "mine" / "new").exists()


def test_init_without_a_name_is_wrong_usage_and_writes_nothing(verb: Verb, tmp_path: Path) -> None:
    result = verb("init", "")
    assert result.exit_code == 2
    assert "NAME is missing or empty" in result.stderr
    assert not list(tmp_path.iterdir())


def test_init_in_a_removed_folder_says_so(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = verb("init", "shop")
    monkeypatch.chdir(tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith("DEFINITION-080 current folder\n")


def test_init_takes_a_name_that_the_locale_cannot_read(verb: Verb, tmp_path: Path) -> None:
    name = os.fsdecode(b"s\xfcd")
    assert verb("init", name).exit_code == 0
    assert (tmp_path / name / "README.md").read_text("utf-8").startswith("# s\\udcfcd\n")


@pytest.mark.parametrize(
    ("variable", "value", "got"),
    [
        ("FLOODMARK_ENGINE", "sparkk", "engine: Input should be 'spark' or 'embedded', got 'sparkk'"),
        ("FLOODMARK_DIVIDED", "maybe", "divided: Input should be a valid boolean"),
    ],
)
def test_a_wrong_environment_variable_is_named(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, got: str
) -> None:
    monkeypatch.setenv(variable, value)
    result = verb("status")
    assert result.exit_code == 1
    assert result.stderr.startswith("USER-002 definitions.workspace('dev')\n")
    assert f"got:      {got}" in result.stderr
    assert f"fix:      Correct {variable} in the environment. See {shop}" in result.stderr
    assert "http" not in result.stderr


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("lake=None", "lake: a text\n"),
        ('memory="4GB"', "memory: a whole number of megabytes, or None\n"),
        ("shuffle_partitions=0", "shuffle_partitions: a whole number of 1 or more\n"),
        ('divided="no"', "divided: True or False\n"),
        ('kept_days="a month", upkeep_minutes=-5', "kept_days: a number of 0 or more, upkeep_minutes: a number of"),
        ('spark={"a": "b"}', 'spark: pairs of texts, such as (("spark.driver.memory", "4g"),)\n'),
    ],
)
def test_wrong_settings_are_all_named_before_anything_runs(verb: Verb, shop: Path, setting: str, expected: str) -> None:
    settings = f"from floodmark import Settings\n\n\ndef settings(environment):\n    return Settings({setting})\n"
    (shop / "resources" / "settings.py").write_text(settings, "utf-8")
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-073 Settings(")
    assert f"expected: {expected}" in result.stderr


@pytest.mark.parametrize(
    ("lake", "code"),
    [("http://example.org/lake", "SETUP-042 http://example.org/lake"), ("a" * 300, "SETUP-059 floodmark land")],
)
def test_a_lake_nothing_can_be_written_to_is_refused(verb: Verb, shop: Path, lake: str, code: str) -> None:
    result = verb("land", "orders", "--lake", lake)
    assert result.exit_code == 1
    assert result.stderr.startswith(code)
    assert "Traceback" not in result.stderr


def test_a_lake_in_the_home_folder_may_be_written_with_a_tilde(
    verb: Verb, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert verb("land", "orders", "--lake", "~/lake").stdout.startswith(f"lake {tmp_path / 'lake'} (dev)\n")
    monkeypatch.setenv("FLOODMARK_LAKE", "~/lake")
    forget_modules()
    assert verb("status").stdout.startswith(f"lake {tmp_path / 'lake'} (dev)\n")
    assert not (shop / "~").exists()


def test_a_log_that_was_lost_is_not_begun_anew_without_its_rows(verb: Verb, shop: Path) -> None:
    assert verb("land", "orders").exit_code == 0
    entries, copy = shop / "lake" / "logs" / "orders" / "_delta_log", shop / "copy"
    shutil.move(entries, copy)
    more = "ordered_at,order_id,country,items,cents,voucher\n2025-03-01T12:30:00Z,2001,DE,1,100,\n"
    (shop / "inbox" / "orders" / "orders_2025-03-01_12.csv").write_text(more, "utf-8")
    result = verb("land", "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"STATE-010 log {shop / 'lake' / 'logs' / 'orders'}\n")
    assert "expected: the rows of the files that have landed: 3\n" in result.stderr
    assert not entries.exists()
    assert "orders: 20 rows in 1 commit" in verb("land", "orders", "--lake", "lake-anew").stdout
    shutil.move(copy, entries)
    assert "orders: 1 rows in 1 commit" in verb("land", "orders").stdout


def test_a_source_to_run_and_an_operator_to_land_are_told_apart(verb: Verb, shop: Path) -> None:
    assert (
        "fix:      It is a source: floodmark land orders. There are: hourly_sales, voucher_use.\n"
        in verb("run", "orders").stderr
    )
    landed = verb("land", "hourly_sales").stderr
    assert "fix:      It is an operator: floodmark run hourly_sales. There are: orders.\n" in landed


@pytest.mark.parametrize(
    ("old", "new", "code", "fix"),
    [
        (
            "@operator\ndef hourly_sales",
            "def hourly_sales",
            "DEFINITION-076 operator_asset\n",
            "Put @operator above def hourly_sales.",
        ),
        (
            "@operator\ndef hourly_sales",
            '@operator("hourly")\ndef hourly_sales',
            "DEFINITION-057 @operator\n",
            '@operator(name="hourly")',
        ),
        (", sum  #", "  #", "USER-002 module 'definitions'\n", "sum is Python's own here. Import floodmark's, from"),
        ('sum("cents")', "sum(lambda r: r.cents)", "DEFINITION-020 operator", "flat_map(function, schema=...)"),
    ],
)
def test_a_slip_in_an_operator_is_named(verb: Verb, shop: Path, old: str, new: str, code: str, fix: str) -> None:
    edit(shop, "operators/orders.py", old, new)
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith(code)
    assert fix in result.stderr.partition("fix:")[2]


def test_a_second_operator_of_one_name_is_refused_where_an_asset_shows_the_first(verb: Verb, shop: Path) -> None:
    second = '\n\n@operator(name="hourly_sales")\ndef large(orders: Stream[Order]) -> Stream:\n    return orders.filter("cents > 9")\n'
    with (shop / "operators" / "orders.py").open("a", encoding="utf-8") as file:
        file.write(second)
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith("DEFINITION-070 workspace\n")
    assert result.stderr.count("operators/orders.py:") == 2


def test_a_workspace_function_without_an_argument_is_shown_with_one(verb: Verb, shop: Path) -> None:
    edit(shop, "definitions/__init__.py", 'workspace(environment: str = "dev")', "workspace()")
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith("DEFINITION-082 module 'definitions'")
    assert "def workspace(environment: str) -> Workspace" in result.stderr


def test_files_of_other_formats_named_csv_are_set_aside_with_what_they_are(verb: Verb, shop: Path) -> None:
    inbox = shop / "inbox" / "orders"
    (inbox / "a.csv").write_bytes(b"PAR1\x15\x04\x15")
    (inbox / "~$b.csv").write_bytes(b"PK\x03\x04\x14")
    (inbox / "c.csv").write_bytes(b"\x1f\x8b\x08\x00")
    assert "orders: 19 rows in 1 commit, 4 quarantined" in verb("land", "orders").stdout
    shown = verb("quarantine", "show", "orders").stdout
    for kind in ("a Parquet file: rename it to .parquet", "a workbook of Excel", "compressed: rename it to .csv.gz"):
        assert kind in shown


def test_rescaling_a_stream_of_the_embedded_engine_is_refused_before_spark_is_asked_for(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.cli.verbs.streams.start", lambda *_: pytest.fail("Spark was started"))
    assert verb("land", "orders").exit_code == 0
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up").exit_code == 0
    result = verb("rescale", "hourly_sales", "--partitions", "4")
    assert result.exit_code == 1
    assert result.stderr.startswith("STATE-041 checkpoint")


def test_a_module_that_ends_the_program_is_named(verb: Verb, shop: Path) -> None:
    edit(shop, "operators/orders.py", "class Order(", "raise SystemExit(0)\n\n\nclass Order(")
    result = verb("validate")
    assert result.exit_code == 1
    assert result.stderr.startswith("USER-002 module 'definitions'\n")
    assert "got:      SystemExit: 0\n" in result.stderr
    assert "operators/orders.py:9: raise SystemExit(0)" in result.stderr


def test_commands_of_a_fix_act_on_the_lake_that_was_named(verb: Verb, shop: Path) -> None:
    result = verb("--environment", "prod", "run", "hourly_sales", "--engine", "embedded", "--lake", "my lake")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "  fix:      Land it first: floodmark --environment prod --lake 'my lake' land orders\n"
    )
    lost = verb("rollback", "hourly_sales", "--to", "x", "--lake=other", "--json").stdout
    assert "See those there are: floodmark --lake other savepoint list" in lost


def test_a_panic_of_a_library_for_want_of_files_is_foreseen(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panic = type("PanicException", (BaseException,), {})

    def panics(*_: object) -> None:
        raise panic('Failed to create a runtime.: Os { code: 24, kind: Uncategorized, message: "Too many open files" }')

    monkeypatch.setattr("floodmark.observe.status.status", panics)
    result = verb("status")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-053 floodmark status\n")
    assert "ulimit -n 65536" in result.stderr


@pytest.mark.parametrize("options", [[], ["--from-scratch"]])
def test_a_stream_is_not_handed_to_a_spark_that_is_not_installed(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    stream = ["run", "hourly_sales", "--unbounded", "--until-caught-up"]
    assert verb("land", "orders").exit_code == 0
    assert verb(*stream).exit_code == 0
    monkeypatch.setattr("floodmark.engines.spark.setup.home.find_spec", lambda _: None)
    result = verb(*stream, *options, "--engine", "spark")
    assert result.exit_code == 1
    assert result.stderr.startswith("SETUP-004 Spark\n")
    assert not list((shop / "lake" / "_floodmark" / "savepoints").rglob("manifest.json"))
    assert verb(*stream).exit_code == 0


@pytest.mark.parametrize("mode", [["--unbounded", "--until-caught-up"], []])
def test_a_contract_that_retypes_a_column_of_the_log_is_refused_in_both_modes(
    verb: Verb, shop: Path, mode: list[str]
) -> None:
    assert verb("land", "orders").exit_code == 0
    edit(shop, "operators/orders.py", "cents: int", "cents: float")
    forget_modules()
    result = verb("run", "hourly_sales", *mode)
    assert result.exit_code == 1
    assert "EXECUTION-005 input 'orders' of hourly_sales@" in result.stderr
    assert "got:      cents bigint for double" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_new_required_field_is_refused_with_the_ways_on_wherever_it_is_met(verb: Verb, shop: Path) -> None:
    assert verb("land", "orders").exit_code == 0
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up").exit_code == 0
    edit(shop, "operators/orders.py", "    items: int", "    channel: str\n    items: int")
    forget_modules()
    for command in (["validate"], ["plan"], ["apply", "hourly_sales"], ["land", "orders"]):
        result = verb(*command)
        assert result.exit_code == 1, command
        assert result.stderr.startswith("PLAN-010 "), command
        assert "channel: ... | None = None" in result.stderr
        assert "a new name" in result.stderr


def test_a_new_optional_field_that_no_operator_reads_stops_nothing(verb: Verb, shop: Path) -> None:
    stream = ["run", "hourly_sales", "--unbounded", "--until-caught-up"]
    assert verb("land", "orders").exit_code == 0
    assert verb(*stream).exit_code == 0
    edit(shop, "operators/orders.py", "    items: int", "    channel: str | None = None\n    items: int")
    forget_modules()
    assert verb("validate").exit_code == 0
    assert "its next start resumes under the new code, without an upgrade" in verb("plan", "hourly_sales").stdout
    assert verb(*stream).exit_code == 0
    assert verb("run", "hourly_sales", "--to", "2025-03-01T09:00", "--force").exit_code == 0
    assert "no-op" in verb("plan", "hourly_sales").stdout


def test_an_interval_to_the_end_of_the_calendar_is_not_judged_day_by_day(
    verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = []

    def counted(*arguments: Any) -> Iterator[Any]:
        for day in split(*arguments):
            days.append(day)
            yield day

    monkeypatch.setattr(readiness, "split", counted)
    assert verb("land", "orders").exit_code == 0
    assert verb("run", "hourly_sales", "--from", "0001-01-02", "--to", "9999-12-31").exit_code == 0
    again = verb("run", "hourly_sales", "--from", "2025-03-01T09:00", "--to", "9999-12-31")
    assert "hourly_sales bounded: nothing to do" in again.stdout.replace("@d119c6c0", "")
    assert 0 < len(days) < 1_000_000  # of 2,913,000
