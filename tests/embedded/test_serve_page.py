"""The programs and commands of docs/serve.md do what stands there."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked import Asked, asked
from click.testing import CliRunner
from console_pages import ran
from page_programs import module_of

from floodmark.cli.main import cli
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
ADDRESS = "http://127.0.0.1:9465"


def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that the program of the page is."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    return module_of(folder / "serve_page.py", code, monkeypatch)


def commands() -> list[str]:
    """The commands of the page."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    return [line[2:].partition("  #")[0] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def curl(ask: Asked, command: str, savepoints: dict[str, str]) -> Any:
    """The answer to a command of curl's."""
    asked_for = command
    for operator, name in savepoints.items():
        command = command.replace("as_of=SAVEPOINT", f"as_of={name}") if f"/{operator}" in command else command
    words = shlex.split(command)[1:]
    ran(asked_for)
    body = words[words.index("-d") + 1].encode() if "-d" in words else None
    status, content, _ = ask.raw(words[0].removeprefix(ADDRESS), body)
    assert status == 200, content
    return content if "/bulk" in command else json.loads(content)


@pytest.mark.feature("U1", "U3")
def test_the_commands_of_the_page_answer(sail: Sail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = program(tmp_path, monkeypatch)
    workspace = shop.workspace().at(str(tmp_path))
    lake = Lake.of(workspace.settings)
    (tmp_path / "inbox").mkdir()
    rows = [("01T09", "NL", 5), ("01T09", "NL", 7), ("01T11", "DE", 1), ("02T11", "NL", 3), ("03T11", "NL", 3)]
    lines = "".join(f"2025-01-{hour}:30:00Z,{country},{cents}\n" for hour, country, cents in rows)
    (tmp_path / "inbox" / "1.csv").write_text(f"at,country,cents\n{lines}")
    land(lambda: sail, workspace.source("orders"), lake, workspace=tmp_path)
    for name in ("hourly", "visits"):
        run_unbounded(sail, workspace.operator(name), lake, until_caught_up=True)
    saved = {name: savepoints.create(name, lake).id for name in ("hourly", "visits")}
    with asked(workspace, lake, tmp_path / "copies") as ask:
        ask.until("hourly", 1)
        answers = [curl(ask, one, saved) for one in commands() if one.startswith("curl")]
    point, country, page, several, lines, arrow, parquet, visit, visits, old, old_visits = answers
    assert [(row["orders"], row["cents"]) for row in point["rows"]] == [(2, 12)]
    shown = [json.loads(row + "}")["rows"] for row in re.findall(r'^(\{"rows".*), \.\.\.\}$', PAGE, re.MULTILINE)]
    assert shown == [point["rows"], visit["rows"]]
    assert [row["cents"] for row in country["rows"]] == [12, 3]
    assert [row["cents"] for row in page["rows"]] == [12]
    assert several["rows"] == point["rows"]
    assert [json.loads(line)["cents"] for line in lines.splitlines()] == [1, 12, 3]
    with pa.ipc.open_stream(arrow) as reader:
        assert reader.read_all()["cents"].to_pylist() == [12, 3]
    assert pq.read_table(io.BytesIO(parquet))["cents"].to_pylist() == [1, 12, 3]
    assert (len(visits["rows"]), visits["next"] is not None) == (1, True)
    assert [row["cents"] for row in old["rows"]] == [1, 12, 3]
    assert [row["state"]["count"] for row in old_visits["rows"]] == [1, 4]


def test_the_verb_takes_what_the_page_gives_it() -> None:
    for command in commands():
        words = shlex.split(command)
        if words[:2] == ["floodmark", "serve"]:
            assert CliRunner().invoke(cli, [*words[1:], "--help"]).exit_code == 0
            ran(command)
