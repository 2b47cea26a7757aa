"""Dagster's own command, dg, on what ``floodmark init`` makes: it checks, scaffolds and lists, and a component gives the same as ``build_definitions``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from console_pages import ran
from page_programs import pieces

from definitions import workspace
from floodmark.core.errors import DefinitionError
from floodmark.orchestration import FloodmarkComponent, build_definitions

ROOT = Path(__file__).resolve().parents[2]
BY_COMPONENT = '''"""What Dagster loads."""

from pathlib import Path

import dagster as dg

defs = dg.load_from_defs_folder(path_within_project=Path(__file__))
'''


def said(folder: Path, *command: str) -> str:
    """What a command says that succeeds, with the programs of this Python."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": programs, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def listed(folder: Path) -> dict[str, set[str]]:
    """Kind of definition -> their names, as dg lists them."""
    kinds = json.loads(said(folder, "dg", "list", "defs", "--json"))
    named = {"assets": "asset_key", "jobs": "name", "sensors": "name", "schedules": "name", "asset_checks": "key"}
    return {kind: {definition[name] for definition in kinds[kind]} for kind, name in named.items()}


def named(definitions: dg.Definitions) -> dict[str, set[str]]:
    """Kind of definition -> their names."""
    return {
        "assets": {key.to_user_string() for key in definitions.resolve_all_asset_keys()},
        "jobs": {job.name for job in definitions.resolve_all_job_defs()},
        "checks": {f"{key}" for key in definitions.resolve_asset_graph().asset_check_keys},
        "schedules": {one.name for one in definitions.schedules or ()},
        "sensors": {one.name for one in definitions.sensors or ()},
    }


@pytest.mark.feature("Z1")
def test_a_component_is_the_workspace() -> None:
    (shown,) = pieces(ROOT / "docs" / "dagster.md", "yaml")
    page = yaml.safe_load(shown)
    assert page["type"] == f"floodmark.orchestration.{FloodmarkComponent.__name__}"
    component = FloodmarkComponent(**page["attributes"])
    made = named(component.build_defs(dg.ComponentTree.for_test().load_context))
    assert made == named(build_definitions(workspace(), root=ROOT))
    assert all(made[kind] for kind in ("assets", "jobs", "checks", "sensors"))
    ran(shown)


@pytest.mark.soak
@pytest.mark.feature("Z1")
@pytest.mark.timeout(300)
def test_dg_scaffolds_and_a_component_is_the_workspace(tmp_path: Path) -> None:
    said(tmp_path, "floodmark", "init", "shop")
    shop = tmp_path / "shop"
    said(shop, "dg", "scaffold", "defs", "dagster.asset", "report.py")
    assert "All definitions loaded successfully" in said(shop, "dg", "check", "defs")
    by_code = listed(shop)
    assert {"orders", "hourly_sales", "report"} <= by_code["assets"]

    said(shop, "dg", "scaffold", "defs", "floodmark.orchestration.FloodmarkComponent", "shop")
    (shop / "definitions" / "defs.py").write_text(BY_COMPONENT)
    assert listed(shop) == by_code


@pytest.mark.soak
def test_the_component_is_among_those_that_dg_lists(tmp_path: Path) -> None:
    assert "floodmark.orchestration.FloodmarkComponent" in said(tmp_path, "dg", "list", "components", "--json")


@pytest.mark.parametrize(
    ("workspace", "says"),
    [
        ("definitions", "got 'definitions'"),
        ("definitons:workspace", "no module 'definitons'"),
        ("definitions:workspce", "no 'workspce' in definitions. Did you mean 'workspace'?"),
        ("operators.flights:DAYS", "'DAYS' of operators.flights, which is Daily"),
    ],
)
def test_what_is_no_workspace_is_refused(workspace: str, says: str) -> None:
    component = FloodmarkComponent(workspace=workspace)
    with pytest.raises(DefinitionError, match="DEFINITION-302") as refused:
        component.build_defs(dg.ComponentTree.for_test().load_context)
    assert says in str(refused.value)
