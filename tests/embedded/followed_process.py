"""A rebuild or a reader in a process of its own, which a test may kill: followed_process.py LAKE rebuild|run VERSION|NAME."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from followed import READERS, totals

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.engines.upgrading import rebuild
from floodmark.lake.folder.paths import Lake


def main(folder: str, action: str, name: str) -> None:
    """Rebuild to a version, or run a reader until it has caught up."""
    sail = Sail(memory=300)
    if action == "rebuild":
        rebuild(partial(run_unbounded, sail), totals(name), Lake(folder))
    else:
        run_unbounded(sail, READERS[name](), Lake(folder), until_caught_up=True, files_per_batch=2)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
