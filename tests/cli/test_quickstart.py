"""The quickstart page, command by command in a fresh folder: each does what the page says. One Spark session for all of them."""

from __future__ import annotations

import gzip
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_pages import ran
from deltalake import DeltaTable

from .conftest import Verb

OWN = "/data/orders.csv.gz"
"""The reader's own file, on the page."""
PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"


def blocks(language: str) -> Iterator[str]:
    """The fenced blocks of the page in that language, in order."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        if found[1] == language:
            yield found[2]


def commands() -> list[list[str]]:
    """What the page has its reader type."""
    lines = (line for block in blocks("bash") for line in block.splitlines())
    return [shlex.split(line) for line in lines if line.startswith(("floodmark ", "cd "))]


def sales() -> dict[tuple[str, int], tuple[int, int]]:
    rows = DeltaTable("lake/outputs/hourly_sales__current").to_pyarrow_table().to_pylist()
    return {(row["country"], row["window_start"].hour): (row["orders"], row["cents"]) for row in rows}


@pytest.mark.feature("X1", "O5")
def test_every_command_of_the_page_does_what_the_page_says(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: dict[str, str] = {}
    own = tmp_path / "orders.csv.gz"
    values: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
    for word, *arguments in commands():
        command = " ".join([word, *arguments])
        if word == "cd":
            monkeypatch.chdir(arguments[0])
            continue
        if OWN in arguments:  # the shop's orders
            own.write_bytes(gzip.compress(Path("inbox/orders/orders_2025-03-01_09.csv").read_bytes()))
            monkeypatch.chdir(tmp_path)
        result = verb(*(str(own) if part == OWN else part for part in arguments))
        assert result.exit_code == 0, f"{command}\n{result.stderr}"
        said[command] = result.stdout
        ran(command)
        if arguments[0] == "run":
            values[f"{len(values)} {command}"] = sales()
    (shown,) = blocks("text")
    assert shown in said["floodmark quarantine show orders"]
    assert "19 rows in 1 commit, 1 quarantined" in said["floodmark land orders"]
    assert "is covered already" in said["floodmark run hourly_sales --from 2025-03-01T08:00 --to 2025-03-01T09:00"]
    bounded, hour, stream, ended = values.values()
    assert bounded == hour == stream == ended
    assert {hour for _, hour in bounded} == {8, 9, 10, 11}
    monkeypatch.chdir(tmp_path / "shop")
    _, reading = blocks("python")
    exec(reading, {})  # noqa: S102 - the page's own
    ran(reading)
    assert "DE" in capsys.readouterr().out


def test_the_code_on_the_page_is_that_of_the_workspace(verb: Verb, tmp_path: Path) -> None:
    assert verb("init", "shop").exit_code == 0
    contract, *_ = blocks("python")
    ran(contract)
    assert contract in (tmp_path / "shop" / "operators" / "orders.py").read_text("utf-8")
