"""What the scripts of this folder have measured, as JSON: ``bench/results/NAME.json``, from which pages and pictures are made; or elsewhere, as ``BENCH_RESULTS`` says."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from watching import Watch

FOLDER_VARIABLE = "BENCH_RESULTS"
FOLDER = Path(os.environ.get(FOLDER_VARIABLE) or Path(__file__).resolve().parent / "results")


def keep(name: str, rows: Sequence[dict[str, Any]], by: Sequence[str]) -> None:
    """Keep rows beside those of earlier runs; a row replaces the one with the same values of some columns.

    Args:
        name: of the file.
        rows: JSON values.
        by: columns that tell rows apart.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {tuple(row.get(column) for column in by): row for row in [*read(name), *rows]}
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


def process(command: Sequence[str]) -> dict[str, Any]:
    """Run a program in a process of its own: what it says last, as JSON, with its seconds, and processor seconds and peak memory of its process tree; ``left out``, the reason, if it fails."""
    began = time.perf_counter()
    running = subprocess.Popen([*command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = Watch(running.pid)
    told, errors = running.communicate()
    seconds = time.perf_counter() - began
    if running.returncode:
        return {"left out": (errors.strip().splitlines() or ["it failed"])[-1][:300]}
    watch.end()
    numbers = {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(watch.cpu_seconds, 2),
        "peak_memory_mb": round(watch.peak_memory_mb),
    }
    return {**json.loads(told.splitlines()[-1]), **numbers}
