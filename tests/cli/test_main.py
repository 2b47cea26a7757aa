"""The group: help, errors for people, errors for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from console_pages import ran
from page_programs import pieces

from .conftest import Verb

CLUSTERS = Path(__file__).parents[2] / "docs" / "clusters.md"
NOT_A_WORKSPACE = """\
DEFINITION-080 folder {folder}
  expected: a pyproject.toml with [tool.floodmark] here or in a folder above
  got:      none
  fix:      Go to your workspace's folder, or make one: `floodmark init shop`.
"""


def test_help_names_every_verb(verb: Verb) -> None:
    result = verb("--help")
    assert result.exit_code == 0
    for name in (
        "init",
        "validate",
        "explain",
        "land",
        "status",
        "run",
        "plan",
        "watermark",
        "prove",
        "quarantine",
        "up",
    ):
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["validate"], ["explain", "x"], ["status"], ["watermark", "x"], ["init", "--help"]]
)
@pytest.mark.few(2)
def test_verbs_without_spark_import_none(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom floodmark.cli.main import cli\n"
        f"try: cli.main({arguments!r})\nexcept SystemExit: pass\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_what_handles_streams_from_outside_loads_no_pandas() -> None:
    code = "import sys, floodmark.control.streams.actions, floodmark.engines.spark.unbounded.run\nsys.exit('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_error_says_code_where_expected_got_fix_and_no_traceback(verb: Verb, tmp_path: Path) -> None:
    result = verb("validate")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == NOT_A_WORKSPACE.format(folder=tmp_path)


@pytest.mark.parametrize("arguments", [["--json", "validate"], ["validate", "--json"]])
def test_an_error_is_one_json_document(verb: Verb, tmp_path: Path, arguments: list[str]) -> None:
    result = verb(*arguments)
    assert (result.exit_code, result.stderr) == (1, "")
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "DEFINITION-080"
    assert error["where"] == f"folder {tmp_path}"
    assert set(error) == {"code", "where", "expected", "got", "fix"}


def test_an_unknown_verb_is_named_with_the_closest_one(verb: Verb) -> None:
    result = verb("vaildate")
    assert result.exit_code == 2
    assert "no verb 'vaildate'. Did you mean 'validate'? Verbs: init, validate," in result.stderr


def test_wrong_usage_is_json_too(verb: Verb) -> None:
    result = verb("run", "x", "--nonsense", "--json")
    assert (result.exit_code, result.stderr) == (2, "")
    assert json.loads(result.stdout)["error"]["code"] == "USAGE"


def test_an_unexpected_exception_keeps_its_traceback(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        msg = "not foreseen"
        raise RuntimeError(msg)

    monkeypatch.setattr("floodmark.cli.verbs.workspace.open_workspace", broken)
    result = verb("validate")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "RuntimeError: not foreseen" in result.stderr
    assert result.stderr.endswith("the traceback above says where it comes from.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "name one operator or more, or give --all"),
        (["run", "x", "--all"], "name one operator or more, or give --all"),
        (
            ["run", "x", "--until-caught-up"],
            "--until-caught-up means nothing for a bounded run. Add --unbounded, or leave out",
        ),
        (["run", "x", "--files-per-batch", "1"], "--files-per-batch means nothing for a bounded run."),
        (
            ["run", "x", "--unbounded", "--from", "2013-01-01"],
            "--from means nothing for an unbounded run. Leave out --unbounded",
        ),
        (["run", "x", "--unbounded", "--force"], "--force means nothing for an unbounded run."),
        (["run", "x", "--unbounded", "--late-rows", "all"], "--late-rows means nothing for an unbounded run."),
        (["run", "--all", "--unbounded"], "--unbounded of several operators needs --until-caught-up"),
        (["land"], "name the sources to land, or give --all"),
        (["land", "x", "--all"], "name the sources to land, or give --all"),
        (["land", "--all", "--continuous"], "--continuous lands one source; start one process per source"),
        (["watermark", "x", "--allowed-lateness", "1 hour"], "--allowed-lateness means nothing without --window"),
        (["land", "x", "--continuous", "--end"], "--end means nothing with --continuous"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(verb: Verb, arguments: list[str], message: str) -> None:
    result = verb(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")


def test_a_reversed_interval_is_refused_before_anything_starts(verb: Verb, shop: Path) -> None:
    result = verb("run", "hourly_sales", "--from", "2025-03-02", "--to", "2025-03-01")
    assert result.exit_code == 1
    assert result.stderr == (
        "LIFECYCLE-001 interval\n"
        "  expected: a start before its end\n"
        "  got:      from 2025-03-02T00:00:00Z to 2025-03-01T00:00:00Z\n"
        "  fix:      Swap --from and --to.\n"
    )


def test_package_writes_an_archive_and_says_how_to_use_it(
    shop: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark.engines.spark.setup import environment

    monkeypatch.setattr(environment, "_OWN", ("click",))
    project = shop / "pyproject.toml"
    project.write_text(project.read_text("utf-8").replace('dependencies = ["floodmark"]', "dependencies = []"), "utf-8")
    shown, _ = pieces(CLUSTERS, "console")
    _, *words = shown.removeprefix("$ ").split()
    result = verb(*words, "--with", "filelock")
    assert f'("spark.archives", "{shop}/environment.tar.gz#environment")' in result.stdout
    assert "2 packages" in result.stdout
    assert (shop / "environment.tar.gz").stat().st_size > 0
    ran(shown)
