"""What the scripts of this folder have measured, as JSON: ``bench/results/NAME.json``, from which pages and pictures are made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


def keep(name: str, rows: Sequence[dict[str, Any]], by: Sequence[str]) -> None:
    """Keep rows beside those of earlier runs; a row replaces the one with the same values of some columns.

    Args:
        name: of the file.
        rows: JSON values.
        by: columns that tell rows apart.
    """
    FOLDER.mkdir(exist_ok=True)
    kept = {tuple(row[column] for column in by): row for row in [*read(name), *rows]}
    text = ",\n".join(f" {json.dumps(row)}" for row in kept.values())
    (FOLDER / f"{name}.json").write_text(f"[\n{text}\n]\n")


def read(name: str) -> list[dict[str, Any]]:
    """The rows kept under a name; none if nothing was measured."""
    file = FOLDER / f"{name}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return rows


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Rows in Markdown."""
    lines = [[*columns], ["---"] * len(columns)]
    for row in rows:
        cells = (row.get(column) for column in columns)
        lines.append(
            [
                "" if c is None else f"{c:,}" if isinstance(c, int | float) and not isinstance(c, bool) else f"{c}"
                for c in cells
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
