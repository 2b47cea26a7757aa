"""Savepoints, upgrades, rollbacks and forks on the command line: a stream of the shop, changed and taken back. Only runs start Spark."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from .conftest import program

OPERATOR = "hourly_sales"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose stream has caught up."""
    parent = tmp_path_factory.mktemp("streams")
    assert program(parent, "init", "shop").returncode == 0
    for arguments in (("land", "orders"), ("run", OPERATOR, "--unbounded", "--until-caught-up")):
        done = program(parent / "shop", *arguments)
        assert done.returncode == 0, done.stderr
    return parent / "shop"


@pytest.fixture
def shop(running: Path, tmp_path: Path) -> Path:
    """A copy of it, which is a lake that was moved."""
    return Path(shutil.copytree(running, tmp_path / "shop"))


def said(shop: Path, *arguments: str) -> str:
    done = program(shop, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str], code: str) -> str:
    assert done.returncode == 1
    assert done.stderr.startswith(f"{code} "), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def rows(shop: Path, lake: str = "lake") -> list[str]:
    table = DeltaTable(str(shop / lake / "outputs" / OPERATOR)).to_pyarrow_table()
    names = [name for name in table.column_names if not name.startswith("_")]
    return sorted(repr(row) for row in table.select([*names, "_kind"]).to_pylist() if row["_kind"] < 1)


def made(shop: Path) -> str:
    found = json.loads(said(shop, "savepoint", "create", OPERATOR, "--note", "to try", "--json"))
    return str(found["savepoints"][0]["id"])


@pytest.mark.feature("V1")
def test_a_savepoint_is_made_shown_checked_exported_and_deleted(shop: Path, tmp_path: Path) -> None:
    assert "no savepoints" in said(shop, "savepoint", "list")
    name = made(shop)
    assert re.fullmatch(rf"{OPERATOR}-\d{{8}}T\d{{6}}-[0-9a-z]{{5}}", name)
    listed = said(shop, "savepoint", "list")
    assert name in listed
    assert "to try" in listed
    shown = said(shop, "savepoint", "show", name)
    assert f"output   {OPERATOR} at version" in shown
    assert "engine   embedded, " in shown
    assert "files are as they were written" in said(shop, "savepoint", "verify", name)
    said(shop, "savepoint", "pin", name)
    assert "pin --off" in refused(program(shop, "savepoint", "delete", name), "LIFECYCLE-032").replace(f" {name}", "")
    said(shop, "savepoint", "pin", name, "--off")
    said(shop, "savepoint", "export", name, str(tmp_path / "out"))
    said(shop, "savepoint", "delete", name)
    assert "no savepoints" in said(shop, "savepoint", "list")
    said(shop, "savepoint", "import", str(tmp_path / "out" / name))
    assert "they hold the same" in said(shop, "savepoint", "diff", name, name)
    state = next((tmp_path / "out" / name).glob("checkpoint/batches/*"))
    state.write_bytes(b"something else")
    said(shop, "savepoint", "delete", name)
    assert "bytes instead of" in refused(
        program(shop, "savepoint", "import", str(tmp_path / "out" / name)), "STATE-021"
    )
    assert "Did you mean" in refused(program(shop, "savepoint", "show", made(shop)[:-1]), "LIFECYCLE-031")
    refused(program(shop, "savepoint", "create", OPERATOR, "--lake", str(tmp_path / "empty")), "LIFECYCLE-030")


def deliver(shop: Path) -> None:
    """Deliver the results, of a table that is divided by days: the database has those that count."""
    for kind in ("files", "sql"):
        said(shop, "deliver", f"{OPERATOR}_to_{kind}")
    with closing(sqlite3.connect(shop / "sink.db")) as connection:
        delivered = connection.execute(f"SELECT count(*), sum(cents) FROM {OPERATOR}").fetchone()
    current = DeltaTable(str(shop / "lake" / "outputs" / f"{OPERATOR}__current")).to_pyarrow_table().to_pylist()
    counted = [row["cents"] for row in current if row["_kind"] == 0]
    assert delivered == (len(counted), sum(counted))


def test_a_change_is_applied_and_taken_back(shop: Path) -> None:
    operators = next(path for path in (shop / "operators").glob("*.py") if OPERATOR in path.read_text())
    old = operators.read_text()
    new = old.replace("cents=sum(", 'largest=max("cents"), cents=sum(').replace(
        "import Contract", "import max, Contract"
    )
    assert new != old
    operators.write_text(new)
    told = said(shop, "plan", OPERATOR)
    assert f"floodmark apply {OPERATOR} --rebuild" in told
    assert "rebuild" in refused(program(shop, "apply", OPERATOR), "PLAN-011")
    before = rows(shop)
    done = said(shop, "apply", OPERATOR, "--rebuild", "--note", "the largest one")
    (back,) = re.findall(rf"floodmark (rollback {OPERATOR} --to \S+)", done)
    said(shop, "run", OPERATOR, "--unbounded", "--until-caught-up")
    deliveries = f'ToFiles("out", changes=True), ToSql("sqlite:///{shop}/sink.db")'
    assets = shop / "assets" / "orders.py"
    declared = assets.read_text().replace("hourly_sales,", f"hourly_sales,\n    deliver=[{deliveries}],", 1)
    assets.write_text(declared.replace("import Bounded", "import ToFiles, ToSql, Bounded"))
    deliver(shop)
    assert all("'largest'" in row for row in rows(shop))
    assert len(rows(shop)) == len(before)
    dry = said(shop, *back.split(), "--dry-run")
    assert "would lose" in dry
    assert f"{OPERATOR}_to_files has delivered {OPERATOR} up to version" in dry
    assert all("'largest'" in row for row in rows(shop)), "a dry run changes nothing"
    assert "restore that" in said(shop, *back.split())
    assert rows(shop) == before
    deliver(shop)
    assert f"{OPERATOR}_to_files has delivered" in said(shop, "apply", OPERATOR, "--rebuild", "--dry-run")
    operators.write_text(old)
    said(shop, "run", OPERATOR, "--unbounded", "--until-caught-up")
    assert rows(shop) == before


def test_a_fork_goes_its_own_way(shop: Path, tmp_path: Path) -> None:
    name, before = made(shop), rows(shop)
    told = said(shop, "fork", OPERATOR, "--from", name, "--into", str(tmp_path / "what-if"))
    assert f"floodmark run {OPERATOR} --unbounded --lake {tmp_path / 'what-if'}" in told
    refused(program(shop, "fork", OPERATOR, "--from", name, "--into", str(tmp_path / "what-if")), "LIFECYCLE-041")
    run = said(shop, "run", OPERATOR, "--unbounded", "--until-caught-up", "--lake", str(tmp_path / "what-if"))
    assert "0 rows" in run, "there is nothing new since"
    assert rows(shop, str(tmp_path / "what-if")) == before
    assert "LIFECYCLE-012" in program(shop, "land", "orders", "--lake", str(tmp_path / "what-if")).stderr
