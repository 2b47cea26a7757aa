"""What the commands of each example cost: seconds by the clock, and processor seconds of all processes.

    python bench/example_costs.py [NAME]...

``floodmark init --example`` makes a folder, and the commands of the example's page run there as they stand, in one shell that ends at the first command that fails; those of an example with a tutorial are the tutorial's.
Every ``floodmark`` is a process of its own, with the start of Python and of the server in it. Results are compared with oracles by the tests that ``examples/README.md`` names, not here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measurements import keep
from watching import Watch

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/pyproject.toml"))
BLOCK = re.compile(r"^```(?:console|bash)[^\n]*\n(.+?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("kafka", "curl ")
"""Words of blocks that need what is not on this machine."""
DONE = ("cd examples/", "pip install")
"""How lines begin that have been done before."""


def commands(name: str) -> list[str]:
    """The commands of an example's page, in order; of its tutorial if the page has none."""
    pages = (ROOT / "examples" / name / "README.md", ROOT / "docs" / "tutorials" / f"{name}.md")
    for page in filter(Path.exists, pages):
        blocks = BLOCK.findall(page.read_text("utf-8"))
        if own := [block for block in blocks if not any(word in block for word in ELSEWHERE)]:
            return [line for block in own for line in _lines(block) if not line.startswith(DONE)]
    msg = f"no page of {name} has commands"
    raise ValueError(msg)


def _lines(block: str) -> list[str]:
    """The commands in a block: the lines behind a prompt, or all lines if there is none."""
    lines = block.splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line]


def measured(name: str, place: Path) -> dict[str, Any]:
    """One example: what its commands cost, or why they ended."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    made = subprocess.run(
        ["floodmark", "init", str(place), "--example", name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return {"left out": made.stderr.strip()}
    own, began = commands(name), time.perf_counter()
    shell = subprocess.Popen(
        ["bash", "-euc", "\n".join(own)],
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = Watch(shell.pid)
    errors = shell.communicate()[1]
    seconds = time.perf_counter() - began
    if shell.returncode:
        return {"left out": errors.strip()[-500:]}
    return {"commands": len(own), "seconds": round(seconds, 1), "cpu_seconds": round(watch.end().cpu_seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, choices=[*NAMES, []])
    rows = []
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        for name in parser.parse_args().names:
            rows.append({"example": name} | measured(name, Path(place, name)))
            keep("examples", rows[-1:], by=("example",))
            print(json.dumps(rows[-1]), flush=True)
    sys.exit(any("left out" in row for row in rows))


if __name__ == "__main__":
    main()
