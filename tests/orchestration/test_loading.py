"""Definitions load fast, without Java, without reading the environment outside resources/, and without warnings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.cli.new.scaffold import scaffold

ROOT = Path(__file__).resolve().parent.parent.parent

_WATCHED = """
import collections, os, sys, traceback, json
class Watched(collections.UserDict):
    def __getitem__(self, key):
        note(key); return super().__getitem__(key)
    def get(self, key, default=None):
        note(key); return super().get(key, default)
    def items(self):
        note("everything"); return super().items()
    def __contains__(self, key):
        note(key); return super().__contains__(key)
seen = []
def note(key):
    files = [f.filename for f in traceback.extract_stack()]
    own = [f for f in files if any(f"{os.sep}{p}{os.sep}" in f for p in ("operators", "assets", "resources", "definitions", "src/floodmark"))
           and "site-packages" not in f]
    if own and (key == "everything" or str(key).upper().startswith("FLOODMARK")):
        seen.append((key, os.path.basename(os.path.dirname(own[-1]))))
os.environ = Watched(os.environ.copy())
os.getenv = os.environ.get
import definitions
definitions.workspace()
import definitions.defs
java = [m for m in sys.modules if m.startswith("py4j") or m == "great_expectations"]
print(json.dumps({"seen": seen, "java": java}))
"""


def test_importing_the_definitions_starts_no_java_and_reads_the_environment_only_in_resources():
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FLOODMARK")}
    command = [sys.executable, "-c", _WATCHED]
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["java"] == []
    assert found["seen"]
    assert {folder for _, folder in found["seen"]} == {"resources"}


def test_dagster_validates_the_workspace_and_lists_it_without_warnings(tmp_path):
    quiet = os.environ | {
        "PYTHONWARNINGS": "error::dagster.BetaWarning,error::dagster.PreviewWarning",
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"]
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "All code locations passed validation" in told
    assert [line for line in told.splitlines() if "Warning" in line and "SupersessionWarning" not in line] == []
    listed = subprocess.run(
        ["dg", "list", "defs", "--json"], cwd=ROOT, env=quiet, capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert "arning" not in listed.stderr.replace("warnings", "")
    keys = {asset["asset_key"] for asset in json.loads(listed.stdout)["assets"]}
    assert {"flights", "hourly_departures", "hourly_departures__late", "split_delays__severe"} <= keys


def test_a_scaffolded_workspace_is_one_dagster_can_load(tmp_path):
    scaffold(tmp_path / "shop", None)
    code = "from definitions.defs import defs; print(sorted(k.to_user_string() for k in defs.resolve_all_asset_keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "shop", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['hourly_sales', 'hourly_sales__late', 'orders', 'savepoints', 'voucher_use']"


_MANY = """
import time
began = time.process_time()
from pathlib import Path
from floodmark import *
from floodmark.orchestration import build_definitions
class Event(Contract):
    at: EventTime
    name: str
    size: int
made = []
for n in range(200):
    def body(events: Stream[Event]) -> Stream:
        return events.filter("size > 1").key_by("name").window(Calendar("day", "America/New_York")).aggregate(n=count(), s=sum("size"))
    made.append(operator_asset(operator(name=f"operator_{n}")(body), partitions=Daily("2013-01-01", timezone="America/New_York"),
        expectations=[Expectation("column_values_to_be_between", column="n", min_value=1)]))
source = Source("events", contract=Event, connector=Files("x"), watermark=Ascending())
defs = build_definitions(Workspace(sources=[source], operators=made), root=".")
job = defs.resolve_implicit_global_asset_job_def()
print(len(job.nodes), time.process_time() - began)
"""


@pytest.mark.feature("Z1")
def test_two_hundred_operators_load():
    done = subprocess.run([sys.executable, "-c", _MANY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    nodes, seconds = done.stdout.split()
    assert (
        int(nodes) == 403
    )  # a step per operator and suite, the landing, and the checks of code versions and of streams
    assert float(seconds) < 10  # of the processor, three: another program beside it costs nothing
