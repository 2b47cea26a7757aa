"""Finding and importing a workspace, and what is said when that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.cli.shell.invocation import Invocation
from floodmark.cli.shell.loading import open_workspace
from floodmark.core.errors import DefinitionError, FloodmarkError, UserCodeError

from .conftest import Verb


@pytest.fixture
def definitions(shop: Path) -> Path:
    return shop / "definitions" / "__init__.py"


def failure(start: Path) -> FloodmarkError:
    with pytest.raises(FloodmarkError) as caught:
        open_workspace(Invocation(), start)
    return caught.value


def test_a_workspace_is_found_from_a_folder_below(shop: Path) -> None:
    opened = open_workspace(Invocation(), shop / "operators")
    assert opened.root == shop
    assert [source.name for source in opened.workspace.sources] == ["orders"]


def test_paths_start_at_the_workspace(shop: Path) -> None:
    opened = open_workspace(Invocation(), shop / "operators")
    assert (opened.lake, opened.workspace.settings.folder, opened.logs) == (str(shop / "lake"), str(shop), None)


def test_lake_on_the_command_line_starts_at_the_current_folder(shop: Path) -> None:
    assert open_workspace(Invocation(lake="../other"), shop).lake == str(shop.parent / "other")
    assert open_workspace(Invocation(lake="s3a://bucket/lake"), shop).lake == "s3a://bucket/lake"


def test_environment_picks_the_settings_and_variables_win(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_workspace(Invocation(environment="prod"), shop).lake == str(shop / "lake-prod")
    monkeypatch.setenv("FLOODMARK_LAKE", "elsewhere")
    monkeypatch.setenv("FLOODMARK_LOGS", "lake-prod")
    opened = open_workspace(Invocation(), shop)
    assert (opened.lake, opened.logs) == (str(shop / "elsewhere"), str(shop / "lake-prod"))


def test_an_exception_in_the_definitions_says_file_and_line(definitions: Path, shop: Path) -> None:
    definitions.write_text("limit = 3\nrate = limit / 0\n")
    error = failure(shop)
    assert isinstance(error, UserCodeError)
    assert (error.code, error.where, error.got) == (
        "USER-002",
        "module 'definitions'",
        "ZeroDivisionError: division by zero",
    )
    assert error.fix == f"See {definitions}:2: rate = limit / 0"


def test_a_name_of_floodmark_that_was_not_imported_says_the_import(definitions: Path, shop: Path) -> None:
    definitions.write_text("x = 1\ny = median('cents')\nz = medium\n")
    error = failure(shop)
    assert (error.code, error.got) == ("USER-002", "NameError: name 'median' is not defined")
    assert error.fix == f"Import it, from floodmark import median: {definitions}:2: y = median('cents')"
    definitions.write_text("z = medium\n")
    assert failure(shop).fix == f"See {definitions}:1: z = medium"


def test_a_syntax_error_says_file_and_line(shop: Path) -> None:
    orders = shop / "operators" / "orders.py"
    orders.write_text("def broken(:\n    pass\n")
    error = failure(shop)
    assert error.got.startswith("SyntaxError: ")
    assert error.fix == f"See {orders}:1: def broken(:"


def test_a_missing_module_inside_the_definitions_is_the_users(definitions: Path, shop: Path) -> None:
    definitions.write_text("import no_such_module\n")
    error = failure(shop)
    assert (error.code, error.got) == ("USER-002", "ModuleNotFoundError: No module named 'no_such_module'")


def test_floodmarks_own_errors_pass_unchanged(shop: Path) -> None:
    orders = shop / "operators" / "orders.py"
    orders.write_text(orders.read_text().replace('key_by("country")', 'key_by("county")'))
    error = failure(shop)
    assert isinstance(error, DefinitionError)
    assert (error.code, error.where) == ("DEFINITION-022", "operator 'hourly_sales', step 'key_by'")
    assert error.fix.startswith("Did you mean 'country'?")


def test_no_definitions_module(shop: Path) -> None:
    pyproject = shop / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('definitions = "definitions"', 'definitions = "defs"'))
    error = failure(shop)
    assert str(error) == (
        f"DEFINITION-081 {pyproject}: expected a module 'defs' below its folder, got none. "
        f"Create {shop / 'defs' / '__init__.py'}, or correct `definitions` under [tool.floodmark]."
    )


def test_no_workspace_function(definitions: Path, shop: Path) -> None:
    definitions.write_text("")
    assert str(failure(shop)) == (
        f"DEFINITION-082 module 'definitions' ({definitions}): expected a function `workspace`, got none. "
        "Add: def workspace(environment: str) -> Workspace: return Workspace(sources=[...], operators=[...])."
    )


def test_workspace_returns_something_else(definitions: Path, shop: Path) -> None:
    definitions.write_text("def workspace(environment):\n    return [environment]\n")
    assert str(failure(shop)) == (
        "DEFINITION-083 definitions.workspace('dev'): expected a Workspace, got list. "
        "Return floodmark.Workspace(sources=[...], operators=[...], settings=...)."
    )


def test_a_broken_pyproject(shop: Path) -> None:
    (shop / "pyproject.toml").write_text("[tool.floodmark\n")
    error = failure(shop)
    assert (error.code, error.where) == ("DEFINITION-084", str(shop / "pyproject.toml"))


def test_the_repositorys_own_workspace_loads(fresh_modules: None) -> None:
    opened = open_workspace(Invocation(), Path(__file__).parent)
    assert [source.name for source in opened.workspace.sources] == ["flights", "weather"]
    assert {operator.name for operator in opened.workspace.operators} == {
        "hourly_departures",
        "rolling_departures",
        "daily_carriers",
        "busiest_hour",
        "split_delays",
        "delay_sessions",
        "moving_median",
        "storm_alerts",
        "aircraft_rotations",
        "stranded_aircraft",
        "weather_at_departure",
        "connection_pairs",
    }


@pytest.mark.feature("T20")
def test_validate_lists_sources_operators_and_warnings(verb: Verb, shop: Path) -> None:
    orders = shop / "operators" / "orders.py"
    orders.write_text(orders.read_text().replace("orders.key_by", 'orders.filter("ordered_at < now()").key_by'))
    result = verb("validate")
    assert result.exit_code == 0
    assert "orders   Order     ordered_at" in result.stdout or "orders  Order     ordered_at" in result.stdout
    assert "warning: operator 'hourly_sales': 'ordered_at < now()' reads a clock or a random number" in result.stdout
    assert result.stdout.endswith("valid: 1 source, 2 operators\n")


def test_validate_warns_of_a_folder_that_is_not_there_and_of_an_expectation_nobody_has(verb: Verb, shop: Path) -> None:
    assets = shop / "assets" / "orders.py"
    text = assets.read_text().replace('"inbox/orders"', '"inbox/order"').replace("to_be_between", "to_be_betwen")
    assets.write_text(text)
    said = verb("validate").stdout
    assert "warning: CONNECTOR-002 source 'orders': " in said
    assert "Did you mean 'orders'?" in said
    assert "warning: expectation 'column_values_to_be_betwen': " in said
    assert "Did you mean 'column_values_to_be_between'?" in said


def test_definitions_of_another_workspace_are_not_taken_for_this_one(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "pyproject.toml").write_text("[tool.floodmark]\n")
    monkeypatch.syspath_prepend(str(shop))  # as PYTHONPATH does
    error = failure(empty)
    assert (error.code, error.where) == ("DEFINITION-081", str(empty / "pyproject.toml"))
    assert error.got == f"only that of another workspace, {shop / 'definitions' / '__init__.py'}"


def test_a_pyproject_that_is_no_text_is_named(shop: Path) -> None:
    (shop / "pyproject.toml").write_bytes(b"\xeb\x00\xff")
    assert failure(shop).code == "DEFINITION-084"


def test_a_current_folder_that_was_removed_is_told(tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = verb("status")
    assert result.exit_code == 1
    assert result.stderr.startswith("DEFINITION-080 current folder\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("arguments", "what"), [(["run", "--all"], "operators"), (["land", "--all"], "sources")])
def test_a_workspace_of_nothing_says_so_and_starts_no_spark(
    definitions: Path, verb: Verb, arguments: list[str], what: str
) -> None:
    definitions.write_text("from floodmark import Workspace\ndef workspace(environment): return Workspace()\n")
    result = verb(*arguments)
    assert result.exit_code == 0, result.stderr
    assert f"the workspace has no {what}" in result.stdout
