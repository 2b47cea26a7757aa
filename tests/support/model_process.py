"""A stream of an online model in a process of its own, which a test may kill: model_process.py LAKE MODEL."""

from __future__ import annotations

import sys

from learned import learning

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake


def main(folder: str, name: str) -> None:
    """Run until caught up."""
    sail = Sail(memory=300)
    run_unbounded(sail, learning(name), Lake(folder), until_caught_up=True, files_per_batch=1)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
