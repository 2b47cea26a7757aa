"""A lake that may only be read: what looks at it works, and what would write into it says so. No JVM starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import paths

from .conftest import Verb
from .test_embedded import landed

_OVERRIDE = "-dac_override,-dac_read_search,-fowner"
"""What lets root write where nobody may."""
_PROGRAM = """
import json, sys
from click.testing import CliRunner
from floodmark.cli.main import cli
answers = []
for verb in json.loads(sys.argv[1]):
    result = CliRunner().invoke(cli, verb)
    answers.append([result.exit_code, result.output, repr(result.exception)])
print("ANSWERS" + json.dumps(answers))
"""


def as_reader(folder: Path, verbs: list[list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and exception of each verb, for a user whom the bits of files bind."""
    bound = ["setpriv", f"--bounding-set={_OVERRIDE}", f"--inh-caps={_OVERRIDE}"] if not os.geteuid() else []
    if bound and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv")
    done = subprocess.run(
        [*bound, sys.executable, "-c", _PROGRAM, json.dumps(verbs)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ANSWERS" in done.stdout, done.stdout + done.stderr
    return [tuple(one) for one in json.loads(done.stdout.rpartition("ANSWERS")[2])]


def test_what_looks_at_it_works_and_what_writes_says_so(verb: Verb, shop: Path) -> None:
    landed(shop)
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up", "--engine", "embedded").exit_code == 0
    made = verb("savepoint", "create", "hourly_sales", "--json")
    assert made.exit_code == 0, made.output
    savepoint = next((shop / "lake/_floodmark/savepoints/hourly_sales").glob("hourly_sales-*")).name
    places = [shop / "lake", *(shop / "lake").rglob("*")]
    modes = {place: place.stat().st_mode for place in places}
    before = {place: place.read_bytes() for place in places if place.is_file()}
    reads = [
        ["status"],
        ["plan"],
        ["savepoint", "list"],
        ["savepoint", "show", savepoint],
        ["diff", "hourly_sales", "hourly_sales"],
        ["quarantine", "show", "orders"],
        ["explain", "hourly_sales"],
        ["validate"],
        ["rollback", "hourly_sales", "--to", savepoint, "--dry-run"],
        ["move", "hourly_sales", "--into", "moved", "--dry-run"],
        ["experiment", "list"],
        ["prove", "hourly_sales", "--cuts", "1"],
    ]
    writes = [
        ["run", "hourly_sales", "--engine", "embedded"],
        ["run", "hourly_sales", "--unbounded", "--until-caught-up", "--engine", "embedded"],
        ["land", "orders", "--engine", "embedded"],
        ["savepoint", "create", "hourly_sales"],
        ["savepoint", "delete", savepoint],
        ["rollback", "hourly_sales", "--to", savepoint],
        ["maintain"],
        ["land", "orders", "--end"],
        ["land", "orders", "--reopen"],
        ["quarantine", "replay", "orders"],
        ["run", "hourly_sales", "--unbounded", "--from-scratch", "--until-caught-up"],
        ["start", "hourly_sales"],
        ["restart", "hourly_sales"],
        ["savepoint", "pin", savepoint],
        ["fork", "hourly_sales", "--from", savepoint, "--into", "forked"],
        ["move", "hourly_sales", "--into", "moved"],
        ["experiment", "start", "x", "--of", "hourly_sales"],
        ["run", "hourly_sales", "--engine", "spark"],
    ]
    changed = shop / "operators" / "orders.py"
    code = changed.read_text("utf-8")
    assert 'cents=sum("cents")' in code
    for place, mode in modes.items():
        place.chmod(mode & ~0o222)
    try:
        answers = as_reader(shop, reads + writes)
        changed.write_text(code.replace('cents=sum("cents")', 'cents=sum("items")'), "utf-8")
        ((code_, output, error),) = as_reader(shop, [["apply", "hourly_sales", "--rebuild"]])
        assert (code_, output.count("SETUP-051")) == (1, 1), (output, error)
    finally:
        for place, mode in modes.items():
            place.chmod(mode)
    for words, (code, output, error) in zip(reads, answers, strict=False):
        assert code == 0, (words, output, error)
    for words, (code, output, error) in zip(writes, answers[len(reads) :], strict=True):
        assert code == 1, (words, output, error)
        assert output.count("SETUP-051") == 1, (words, output)
        assert "no permission: " in output
        assert str(shop / "lake") in output
        assert "Traceback" not in output, words
    places = [shop / "lake", *(shop / "lake").rglob("*")]
    assert {place: place.read_bytes() for place in places if place.is_file()} == before
