"""Commands that pages show by the way, run as they stand there: in a bucket, in a debugger, in a workflow, of the terminal's view, of forgetting."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from console_pages import Reader, ran
from forked_verbs import PROGRAM
from page_programs import pieces
from recipes import variables

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints

if TYPE_CHECKING:
    from s3_server import Proxy

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "tests" / "support" / "cluster_workspace"
MORE = "ordered_at,order_id,country,items,cents,voucher\n2025-03-03T11:10:00Z,2020,DE,1,4200,\n"
PROJECT = '[project]\nname = "mine"\nversion = "0"\ndependencies = []\n\n[tool.floodmark]\ndefinitions = "workspace"\n'
PEOPLE = """
import floodmark as fm

class Order(fm.Contract):
    at: fm.EventTime
    customer_id: int

class User(fm.Contract):
    at: fm.EventTime
    id: int

def workspace(environment="dev"):
    settings = fm.Settings(engine="embedded")
    delay = fm.BoundedOutOfOrderness("1 minute")
    contracts = {"orders": Order, "users": User}
    sources = [fm.Source(name, contract=of, connector=fm.Files(name, min_age="0 s"), watermark=delay) for name, of in contracts.items()]
    return fm.Workspace(sources=sources, operators=[], settings=settings)
"""
DEPARTURES = "at,carrier,origin,delay\n2025-03-01T09:00:00Z,AA,JFK,70\n2025-03-01T09:05:00Z,AA,JFK,80\n"


def commands(page: str, kind: str = "bash", holds: str = "") -> str:
    """The one block of a page in a language that holds a text."""
    (block,) = [block for block in pieces(ROOT / "docs" / f"{page}.md", kind) if holds in block]
    return block


def shell(script: str, folder: Path, more: Mapping[str, str] = {}, given: str = "") -> str:
    """What a script of shell commands prints, of which none may fail."""
    reader = Reader(folder, variables(folder) | more)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=reader.environment,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    ran(script)
    return done.stdout


def on_a_terminal(command: str, folder: Path, until: str) -> str:
    """What a command that goes on until Ctrl-C shows on a terminal, which is typed once a text is there; it ends well."""
    ours, its = pty.openpty()
    environment = Reader(folder, variables(folder)).environment
    environment["PATH"] = f"{PROGRAM.parent}:{environment['PATH']}"  # what is forked has files that are no terminal
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    shown, end = b"", time.monotonic() + 600
    try:
        while until.encode() not in shown and select.select([ours], [], [], max(0, end - time.monotonic()))[0]:
            shown += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            if select.select([ours], [], [], 0.1)[0]:
                with suppress(OSError):  # it has closed its end
                    shown += os.read(ours, 1 << 16)
            assert time.monotonic() < end, shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert process.returncode == 0, shown.decode()
    ran(command)
    return shown.decode()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A new shop."""
    shell("floodmark init shop", tmp_path)
    return tmp_path / "shop"


def test_a_lake_in_a_bucket(shop: Path, s3: object, s3_proxy: Proxy) -> None:
    bucket = s3.bucket()  # type: ignore[attr-defined]  # the server of the fixture
    script = shown_script = commands("buckets", holds="FLOODMARK_LAKE")
    for shown, here in (
        ("=eu-central-1", f"={os.environ['AWS_REGION']}"),
        ("KEY_ID=...", "KEY_ID=key"),
        ("ACCESS_KEY=...", "ACCESS_KEY=secret"),
        ("s3://bucket", bucket),
    ):
        assert shown in script
        script = script.replace(shown, here)
    reached = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
    printed = shell(script, shop, reached)
    ran(shown_script)
    assert f"lake {bucket}/lake (dev)" in printed
    assert re.search(r"unbounded: .*hourly_sales \d+ rows", printed)
    assert not (shop / "lake").exists()


@pytest.mark.soak
def test_a_stream_of_the_cluster_in_a_debugger(tmp_path: Path) -> None:
    """On the embedded engine in both places: that a canonical savepoint crosses from Spark is shown by the tests of moves."""
    shared, exchange, work = tmp_path / "shared", tmp_path / "exchange", tmp_path / "work"
    shutil.copytree(CLUSTER, work)
    (shared / "departures").mkdir(parents=True)
    (shared / "weather").mkdir()
    (shared / "departures" / "1.csv").write_text(DEPARTURES)
    here = {"SHARED": str(shared), "FLOODMARK_ENGINE": "embedded"}
    run = "floodmark run streaks --unbounded --until-caught-up --engine embedded"
    shell(f"floodmark land departures --engine embedded\n{run}\nfloodmark savepoint create streaks", work, here)
    (saved,) = savepoints.savepoints(Lake(str(shared / "lake")), "streaks")
    (shared / "departures" / "2.csv").write_text(DEPARTURES.replace("T09", "T19"))
    shell("floodmark land departures --engine embedded", work, here)
    shown = commands("clusters", "console", "floodmark fork streaks").replace("$ ", "")
    script = shown.replace("/exchange", str(exchange)).replace("SAVEPOINT", saved.id)
    *before, debugged = script.strip().splitlines()
    shell("\n".join(before), work, here)
    line = next(
        n
        for n, text in enumerate((CLUSTER / "operators" / "departures.py").read_text().splitlines(), 1)
        if "rules.ambush()" in text
    )
    asked = f"b operators/departures.py:{line}\nc\np ('counted', self.length.get(0))\ncl 1\nc\nq\n"
    assert "('counted', 2)" in shell(debugged, work, here, asked)
    ran(shown)
    longest = shell("floodmark sql 'SELECT max(length) AS longest FROM streaks' --lake laptop --format csv", work, here)
    assert longest.split()[-1] == "4", "two before the savepoint, and two behind it"


def test_a_workflow_of_a_pull_request(shop: Path) -> None:
    text = commands("rollouts", "yaml")
    workflow = yaml.safe_load(text)
    (step,) = [one["run"] for one in workflow["jobs"]["plan"]["steps"] if "floodmark plan" in one.get("run", "")]
    here = {"FLOODMARK_LAKE": str(shop / "lake"), "FLOODMARK_ENGINE": "embedded"}
    stream = "floodmark land orders\nfloodmark run hourly_sales --unbounded --until-caught-up"
    shell(f"{stream}\nfloodmark savepoint create hourly_sales", shop, here)
    (shop / "inbox" / "orders" / "more.csv").write_text(MORE)
    shell(stream, shop, here)
    step = step.replace("--against prod", f"--against {shop / 'lake'}")
    operators = shop / "operators" / "orders.py"
    operators.write_text(
        operators.read_text().replace(
            'cents=sum("cents"))', 'cents=sum("cents"))\n        .with_columns(mean="cents / orders")'
        )
    )
    shell(step, shop, here)
    assert "hourly_sales" in (shop / "plan.md").read_text()
    assert "✅" in (shop / "plan.md").read_text()
    ran(text)


def test_streams_in_the_terminal(shop: Path) -> None:
    shell("floodmark land orders\nfloodmark start hourly_sales", shop)
    live, once, programs = (line.partition("#")[0].strip() for line in commands("observing").splitlines())
    frame = shell(once, shop)
    assert "hourly_sales" in frame
    assert json.loads(shell(programs, shop).splitlines()[-1])["streams"]
    assert "hourly_sales" in on_a_terminal(live, shop, until="hourly_sales")


def test_the_watermark_of_a_source(shop: Path) -> None:
    assert "orders" in shell(f"floodmark land orders\n{commands('concepts')}", shop)


def test_the_embedded_engine(shop: Path) -> None:
    install, *verbs = commands("embedded").splitlines()
    assert install == "pip install floodmark"
    assert re.search(r"bounded: .*hourly_sales \d+ rows", shell("\n".join(verbs), shop))


def test_files_of_a_deployment(shop: Path) -> None:
    script = commands("deploy", "console").replace("$ ", "")
    shell(script, shop, {"FLOODMARK_CONTROL": "postgresql+psycopg://floodmark@db/floodmark"})
    files = {
        kind: {file.name for file in (shop / f"deploy-{kind}").iterdir()}
        for kind in ("kubernetes", "systemd", "compose")
    }
    assert "kustomization.yaml" in files["kubernetes"]
    assert "compose.yaml" in files["compose"]
    assert any(name.endswith(".service") for name in files["systemd"])


@pytest.mark.soak
def test_a_person_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workspace.py").write_text(PEOPLE)
    for name, column in (("orders", "customer_id"), ("users", "id")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text(f"at,{column}\n2025-03-01T09:00:00Z,42\n2025-03-01T09:01:00Z,7\n")
    all_of_one, several, dry, noted = (line.partition("#")[0].strip() for line in commands("forgetting").splitlines())
    land = "floodmark land orders\nfloodmark land users"
    shell(land, tmp_path)
    left = "floodmark sql 'SELECT COUNT(*) AS n FROM orders WHERE customer_id = 42' --format csv"
    shell(dry, tmp_path)
    assert shell(left, tmp_path).split()[-1] == "1"
    for command in (several, all_of_one, noted):
        shell(command, tmp_path)
    assert shell(left, tmp_path).split()[-1] == "0"
    assert shell(left.replace("42", "7"), tmp_path).split()[-1] == "1"


def test_a_delivery(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workspace.py").write_text(pieces(ROOT / "docs" / "deliveries.md")[0])
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "1.csv").write_text(
        "at,country,cents\n2025-01-01T09:30:00Z,NL,10\n2025-01-01T11:30:00Z,NL,5\n"
    )
    here = {"SHOP_DATABASE": f"sqlite:///{tmp_path}/shop.db"}
    by_hand, supervised = commands("deliveries", "console").replace("$ ", "").splitlines()
    shell(f"floodmark land orders\nfloodmark run hourly --unbounded --until-caught-up\n{by_hand}", tmp_path, here)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert connection.execute("SELECT country, cents FROM sales").fetchall() == [("NL", 10)]
    assert "hourly_to_sql" in shell(f"{supervised}\nfloodmark top --once", tmp_path, here)


@pytest.mark.soak
def test_a_proof_on_rows_that_have_landed(shop: Path) -> None:
    (prove,) = [text for text in pieces(ROOT / "docs" / "testing.md", "bash") if "floodmark prove" in text]
    ran(prove)
    for shown, here in (
        ("hourly_departures", "hourly_sales"),
        ("2013-03-01", "2025-03-01"),
        ("2013-04-01", "2025-03-02"),
    ):
        assert shown in prove
        prove = prove.replace(shown, here)
    printed = shell(f"floodmark land orders --end\n{prove}", shop)
    assert "50" in printed
