"""Write docs/rooms.md from the contracts in pyproject.toml and the packages.

python tests/docs/rooms_page.py > docs/rooms.md
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LARGE = 20
"""Modules of a package, itself left out: one with more has rooms."""

HEAD = """\
# Rooms

Which modules a package has, by rooms: sub-packages, each for one concern. A room imports only rooms below it; rooms on one line do not
import each other. `make lint` checks that by the contracts in `pyproject.toml`. What a row, a savepoint and a backfill go through is in [architecture](architecture.md).

This page is written from the contracts and the packages: `python tests/docs/rooms_page.py > docs/rooms.md`.
"""


def contracts() -> dict[str, list[list[str]]]:
    """Package with rooms, such as ``floodmark.lake`` -> its layers, the top one first, each a list of names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layered = [contract for contract in settings if contract["name"].startswith("rooms of")]
    return {
        contract["containers"][0]: [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]
        for contract in layered
    }


def folder(package: str) -> Path:
    """Where a package's modules are."""
    return ROOT / "src" / package.replace(".", "/")


def modules(package: str) -> list[str]:
    """Names of a package's own modules, and of its sub-packages with a slash behind them."""
    files = [file.stem for file in folder(package).glob("*.py") if file.stem != "__init__"]
    packages = [f"{init.parent.name}/" for init in folder(package).glob("*/__init__.py")]
    return sorted([*files, *packages])


def page() -> str:
    """The whole page."""
    sections = [line for package, layers in sorted(contracts().items()) for line in _section(package, layers)]
    return "\n".join([HEAD, *sections])


def _section(package: str, layers: list[list[str]]) -> Iterator[str]:
    yield f"## {package.removeprefix('floodmark.').replace('.', '/')}"
    yield ""
    yield _sentence(folder(package) / "__init__.py")
    yield ""
    yield "| room | what is in it | modules | beside |"
    yield "|---|---|---|---|"
    for layer in layers:
        for room in layer:
            init = folder(package) / room / "__init__.py"
            file = init if init.exists() else folder(package) / f"{room}.py"
            held = _names(modules(f"{package}.{room}")) if init.exists() else ""
            yield f"| `{room}` | {_sentence(file)} | {held} | {_names(name for name in layer if name != room)} |"
    yield ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sentence(file: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
