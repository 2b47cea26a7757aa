"""What a stranger's files become: `floodmark init --from`, `land` and a first `run` for each, without an edit.

python bench/first_contracts.py FILE_OR_FOLDER...
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def ask(*arguments: str, folder: Path) -> dict[str, Any]:
    """The document a verb prints; its error where it has one."""
    command = [sys.executable, "-m", "floodmark.cli.main", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return {"error": {"code": "?", "got": lines[-1] if lines else "nothing"}}
    return found


def first(path: Path, folder: Path) -> dict[str, Any]:
    """What became of one file: rows landed and set aside, the event time, rows of the first output, seconds; or the error."""
    begun = time.monotonic()
    made = ask("init", "made", "--from", str(path), folder=folder)
    seconds = time.monotonic() - begun
    row = {"file": path.name, "init": round(seconds, 1)}
    if "error" in made:
        return {**row, "error": f"init: {made['error']['code']} {made['error']['got']}"}
    workspace = folder / "made"
    text = (workspace / "operators" / f"{made['source']}.py").read_text()
    timed = next(
        (line.split(":")[0].strip() for line in text.splitlines() if "EventTime" in line and ":" in line), "ingestion"
    )
    landed = ask("land", made["source"], "--end", folder=workspace)
    if "error" in landed:
        return {**row, "time": timed, "error": f"land: {landed['error']['code']} {landed['error']['got']}"}
    (source,) = landed["sources"]
    row |= {
        "time": timed,
        "landed": source["rows"],
        "aside": source["quarantined"],
        "trial": made["trial"]["set_aside"],
    }
    run = ask("run", made["operator"], folder=workspace)
    if "error" in run:
        return {**row, "error": f"run: {run['error']['code']} {run['error']['got']}"}
    return {**row, "seconds": round(time.monotonic() - begun, 1)}


def main(paths: list[str]) -> None:
    """A line per file, then how many went through as they were."""
    found = []
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            found.append(first(Path(path).absolute(), Path(folder)))
        sys.stdout.write(json.dumps(found[-1]) + "\n")
        sys.stdout.flush()
    through = sum("error" not in row for row in found)
    timed = sum(row.get("time", "ingestion") != "ingestion" for row in found)
    sys.stdout.write(
        f"{through} of {len(found)} landed and ran without an edit; {timed} with an event time of their own\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
