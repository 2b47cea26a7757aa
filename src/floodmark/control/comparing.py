"""The comparisons of the running experiments of a lake, carried on: ``python -m floodmark.control.comparing`` does one, with an arm's code.

Upkeep does so now and then, so that a report has little left to read. What nobody has asked for yet is not begun: who asks first says how the
arms are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.control.package import load
from floodmark.control.records import StreamId
from floodmark.control.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.lake import experiments
from floodmark.lake.paths import Lake
from floodmark.observe.comparison.arms import carry_on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    package: str
    environment: str
    root: str
    lake: str
    experiment: str


def carry_on_all(store: Store, home: Path, lake: Lake) -> Iterator[str]:
    """Carry on with the comparisons of all running experiments of a lake, one after the other; why one could not be.

    Args:
        store: the control store.
        home: folder of packages.
        lake: the experiments' own, not an arm's.
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
        command = [sys.executable, "-m", "floodmark.control.comparing", json.dumps(asdict(request))]
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"comparison of experiment '{made.name}': {done.stderr.strip()[-2000:]}"


def main(wanted: str) -> int:
    """Carry on with the comparison of one experiment; 1 where it cannot be, and why on stderr."""
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
