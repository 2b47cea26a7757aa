"""Advances the comparisons of a lake's running experiments. ``python -m floodmark.control.processes.comparing`` advances one, with an arm's code.

Upkeep does this periodically, so that a report has little left to read. Comparisons that no report has started are not begun: the first report decides
how the arms are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.control.processes.package import load
from floodmark.control.state.records import StreamId
from floodmark.control.state.store import Store
from floodmark.core.background import with_package
from floodmark.core.errors import FloodmarkError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments
from floodmark.observe.comparison.arms import carry_on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    package: str
    environment: str
    root: str
    lake: str
    experiment: str


def carry_on_all(store: Store, home: Path, lake: Lake) -> Iterator[str]:
    """Advance the comparisons of all running experiments of a lake, one after the other. Yields a message per failure.

    Args:
        store: the control store.
        home: folder of packages.
        lake: the lake of the experiments, not of an arm.
    """
    for made in experiments.known(lake):
        deployment = store.deployment(StreamId(made.operator, made.arms[-1].root))
        if made.state != "running" or deployment is None:
            continue
        folder = home / "packages" / deployment.package
        request = _Request(
            package=str(folder),
            environment=deployment.environment,
            root=deployment.root,
            lake=lake.root,
            experiment=made.name,
        )
        command = [sys.executable, "-m", "floodmark.control.processes.comparing", json.dumps(asdict(request))]
        done = subprocess.run(
            command, cwd=folder, env=with_package(folder), capture_output=True, text=True, check=False
        )
        if done.returncode:
            yield f"comparison of experiment '{made.name}': {done.stderr.strip()[-2000:]}"


def main(wanted: str) -> int:
    """Advance the comparison of one experiment. Returns the exit code: 0, or 1 with the error on stderr.

    Args:
        wanted: the request as JSON.
    """
    request = _Request(**json.loads(wanted))
    try:
        workspace = load(Path(request.package), request.environment, request.root, request.lake)
        lake = Lake.of(workspace.settings)
        made = experiments.find(lake, request.experiment)
        carry_on(lake, made, workspace.operator(made.operator))
    except FloodmarkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
