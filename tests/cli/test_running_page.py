"""The page about running floodmark: a lake that comes back from its copy, ports, versions, formats, and that nothing is sent anywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from console_pages import check
from recipes import cook, prepared, sections, variables

from floodmark.cli.deployment import installation
from floodmark.cli.shell import session
from floodmark.control.serving import server as pages
from floodmark.lake.restore import canonical
from floodmark.lifecycle import savepoint
from floodmark.serve import server as results

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "running.md"
TEXT = PAGE.read_text("utf-8")
RECORDER = """
import json, os, sys
def record(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        address = arguments[1] if event == "socket.connect" else arguments[0]
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(json.dumps(address if isinstance(address, str) else address[0]) + "\\n")
sys.addaudithook(record)
"""
"""Writes down the address of each connection that Python opens, and each name that it looks up."""


def test_a_lake_comes_back_from_its_copy_as_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    prepared(PAGE, tmp_path / "start")
    steps = sections(PAGE)["What to back up"]
    printed = cook(steps, tmp_path / "start", tmp_path / "kitchen")
    for body, step in zip(printed, steps, strict=True):
        check(body, step)


def test_the_ports_are_those_of_the_code() -> None:
    listed = [int(port) for port in re.findall(r"^\| (\d{4}) \|", TEXT, re.MULTILINE)]
    constants = [pages.PORT, results.PORT, session.PORT, installation.CODE_PORT, installation.POSTGRES_PORT]
    assert listed == constants


def test_the_versions_and_formats_are_those_of_the_code() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for name, label in (("pyspark", "Spark"), ("pysail", "Sail, of the embedded engine"), ("dagster", "Dagster")):
        (version,) = set(re.findall(rf'"{name}==([\d.]+)"', project))
        assert f"| {label} | {version}" in TEXT, label
    assert f"with Delta {re.findall(r'delta-spark==([0-9.]+)', project)[0]}" in TEXT
    assert f"| savepoints | format {savepoint.PLAIN}, and {savepoint.STANDING} " in TEXT
    assert f"| canonical savepoints | format {canonical._FORMAT};" in TEXT
    assert f"The version is {re.findall(r'^version = .([0-9.]+)', project, re.MULTILINE)[0]}." in TEXT


@pytest.mark.parametrize("telemetry", [ROOT / "src" / "floodmark" / "orchestration" / "dagster.yaml"])
def test_dagster_counts_nobodys_use(telemetry: Path) -> None:
    assert "telemetry: {enabled: false}" in telemetry.read_text("utf-8")


def test_the_verbs_connect_to_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(RECORDER)
    record = tmp_path / "connections"
    environment = variables(tmp_path) | {"CONNECTIONS": str(record)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), environment["PYTHONPATH"]]))
    seen = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", seen], env=environment, check=True)
    assert record.read_text() == '"127.0.0.1"\n', "the recorder sees what it should"
    verbs = ("init shop", "land orders", "run hourly_sales", "run hourly_sales --unbounded --until-caught-up", "plan")
    for verb in (*verbs, "savepoint create hourly_sales", "status"):
        folder = tmp_path if verb.startswith("init") else tmp_path / "shop"
        command = [sys.executable, "-m", "floodmark.cli.main", *verb.split()]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    addresses = [json.loads(line) for line in record.read_text().splitlines()]
    assert {one for one in addresses if not one.startswith("/")} <= {"127.0.0.1", "::1", "localhost"}


NO_FEATURES = {
    *("architecture", "benchmarks", "coming_from", "cookbook", "features", "quickstart", "rooms"),
    *("running", "scale", "tour", "why"),
}
"""Pages that are about no feature of their own."""


def test_each_page_of_a_feature_has_a_level() -> None:
    table = TEXT.split("## How settled a feature is")[1].split("\n## ")[0]
    levels = re.findall(r"^\| (stable|settling|new) \|", table, re.MULTILINE)
    rows = re.findall(r"^\| (.*\]\(.*) \| (\w+) \|$", table, re.MULTILINE)
    assert {level for _, level in rows} == set(levels) == {"stable", "settling", "new"}
    listed = [page for features, _ in rows for page in re.findall(r"\]\((\w+)\.md\)", features)]
    assert sorted(listed) == sorted({path.stem for path in (ROOT / "docs").glob("*.md")} - NO_FEATURES)
