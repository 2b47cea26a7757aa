"""``floodmark serve`` as a program."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import forked
import pytest

from .conftest import Verb, command


def test_the_program_answers_until_it_is_told_to_stop(shop: Path) -> None:
    with forked.begin(command("serve", "--port", "0"), cwd=shop, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        address = next(found[1] for line in program.stdout if (found := re.search(r"answers at (http://\S+),", line)))
        with urllib.request.urlopen(f"{address}/v1/outputs") as answer:
            outputs = json.load(answer)["outputs"]
        assert outputs
        assert {one["as_of"] for one in outputs} == {None}, "no stream has begun"
        with urllib.request.urlopen(f"{address}/openapi.json") as answer:
            paths = json.load(answer)["paths"]
        assert {f"/v1/outputs/{one['output']}" for one in outputs} <= paths.keys()
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0


def test_what_is_wrong_is_said_with_what_to_do(shop: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        ("serve", "--host", "0.0.0.0"): "SETUP-140",  # noqa: S104 - refused
        ("serve", "--token", "s3cret"): "SETUP-142",
        ("serve", "--token", "env:NO_SUCH_TOKEN"): "SETUP-141",
        ("serve", "nothing"): "SERVE-003",
    }
    for arguments, code in wrong.items():
        result = verb(*arguments, "--json")
        assert (result.exit_code, json.loads(result.stdout.splitlines()[-1])["error"]["code"]) == (1, code)
        assert "s3cret" not in result.output
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "floodmark.serve.server", raising=False)
    result = verb("serve", "--json")
    error = json.loads(result.stdout.splitlines()[-1])["error"]
    assert (error["code"], error["fix"]) == ("SETUP-144", "Install it: pip install 'floodmark[serve]'")
