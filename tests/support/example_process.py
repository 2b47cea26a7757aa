"""The streams of an example in a process of its own, which a test may kill: example_process.py LAKE EXAMPLE."""

from __future__ import annotations

import sys

from example_workspaces import example

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake


def main(folder: str, name: str) -> None:
    """Run each operator until it has caught up, in the order of the workspace."""
    sail = Sail(memory=300)
    for code in example(name).workspace().operators:
        run_unbounded(sail, code, Lake(folder), until_caught_up=True, files_per_batch=1)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
