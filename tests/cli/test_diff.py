"""The verb diff: a fork of the shop with other code beside the original, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodmark.cli.new.scaffold import scaffold

from .conftest import Verb, program


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A shop whose stream has run, and a fork of it whose hours count a cent more per order; the savepoint it was forked from."""
    folder = tmp_path_factory.mktemp("diff") / "shop"
    scaffold(folder, None)
    stream = ("run", "hourly_sales", "--unbounded", "--until-caught-up")
    for verb in (("land", "orders"), stream):
        done = program(folder, *verb)
        assert done.returncode == 0, done.stderr
    made = json.loads(program(folder, "savepoint", "create", "hourly_sales", "--json").stdout)["savepoints"][0]["id"]
    done = program(folder, "fork", "hourly_sales", "--from", made, "--into", "other", "--fresh")
    assert done.returncode == 0, done.stderr
    code = folder / "operators" / "orders.py"
    code.write_text(code.read_text().replace('sum("cents")', 'sum("cents + 1")'))
    done = program(folder, *stream, "--from-scratch", "--lake", "other")
    assert done.returncode == 0, done.stderr
    return folder, made


@pytest.fixture
def shop(verb: Verb, forked: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the original, as the current one."""
    monkeypatch.chdir(forked[0])
    return forked[0]


def test_a_fork_with_other_code_differs_where_its_code_does(shop: Path, verb: Verb, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = verb("diff", "hourly_sales", "--against", "other", "--html", str(page), "--json")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert (found["same"], found["match"], found["grain"]) == (False, 0.0, ["country", "window_start", "window_end"])
    assert found["counts"] == {"equal": 0, "within": 0, "different": 4, "only_left": 0, "only_right": 0}
    columns = {column["name"]: column for column in found["columns"]}
    assert (columns["orders"]["different"], columns["cents"]["different"]) == (0, 4)
    assert columns["cents"]["shift"] == 3  # twelve orders in four hours
    assert [[w["different"], w["only_left"]] for w in found["windows"]] == [[2, 0], [2, 0]]
    assert "25,688" in page.read_text() and "25,694" in page.read_text()


def test_a_tolerance_and_a_least_share_of_rows_decide_the_exit_status(shop: Path, verb: Verb) -> None:
    arguments = ("diff", "hourly_sales", "--against", "other")
    assert verb(*arguments, "--tolerance", "cents=6").exit_code == 0
    assert verb(*arguments, "--tolerance", "cents=2").exit_code == 1
    assert verb(*arguments, "--tolerance", "cents=2", "--match", "0.75").exit_code == 0
    told = verb(*arguments, "--without", "cents")
    assert told.exit_code == 0
    assert "the same (" in told.output


def test_a_savepoint_and_the_table_of_last_values_are_sides_too(
    shop: Path, verb: Verb, forked: tuple[Path, str]
) -> None:
    assert verb("diff", f"hourly_sales@{forked[1]}", "hourly_sales").exit_code == 0
    assert verb("diff", "hourly_sales", "hourly_sales__current").exit_code == 0
    one = json.loads(verb("diff", "hourly_sales@0", "hourly_sales", "--all", "--json").stdout)
    assert one["counts"] == {"equal": 0, "within": 0, "different": 0, "only_left": 0, "only_right": 4}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("hourly_sales",), 2, "--against LAKE"),
        (("hourly_sales", "x", "--all", "--upto", "2025-01-01"), 2, "--upto leaves rows out"),
        (("nobody", "hourly_sales"), 1, "EXECUTION-002"),
        (("hourly_sales", "hourly_sales@99"), 1, "a table whose newest is"),
        (("hourly_sales", "hourly_sales@none-20250101T000000-0000"), 1, "none-20250101T000000-0000"),
        (("hourly_sales", "hourly_sales__late"), 1, "LIFECYCLE-082"),
        (("hourly_sales", "--against", "nowhere"), 1, "LIFECYCLE-084"),
        (("hourly_sales", "--against", "other", "--key", "county"), 1, "Did you mean 'country'?"),
        (("hourly_sales", "--against", "other", "--tolerance", "cents"), 2, "COLUMN=N"),
        (("hourly_sales", "--against", "other", "--tolerance", "cents=-1"), 1, "DEFINITION-160"),
        (("hourly_sales", "--against", "other", "--tolerance", "country=1"), 1, "LIFECYCLE-083"),
        (("hourly_sales", "--against", "other", "--memory", "lots"), 1, "EXECUTION-003"),
    ],
)
def test_what_cannot_be_compared_says_why(
    shop: Path, verb: Verb, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = verb("diff", *arguments)
    assert (done.exit_code, told in done.output) == (code, True), done.output
