"""One version of a stream in a process of its own, which a test may kill: restating_process.py LAKE VERSION."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from restated import totals

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake


def main(folder: str, behind: str) -> None:
    """Run until caught up."""
    sail = Sail(memory=300)
    run_unbounded(sail, totals(behind), Lake(folder), until_caught_up=True, files_per_batch=1)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
