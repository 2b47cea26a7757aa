"""Prepares the forked, stopped stream of an arm in a separate process, which loads the arm's code: ``python -m floodmark.control.processes.arm``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from floodmark.control.processes.engine import computing
from floodmark.control.processes.package import load
from floodmark.core.errors import FloodmarkError
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.pairing import Results
from floodmark.lifecycle.plan import Plan, plan


def main(wanted: str) -> int:
    """Prepare the stream of an arm for the arm's code. Prints a line of JSON: version and results, or ``refused`` with the reason.

    Args:
        wanted: the request as JSON.
    """
    request = json.loads(wanted)
    try:
        answer = _prepared(request)
    except FloodmarkError as error:
        answer = {"refused": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _prepared(request: dict[str, Any]) -> dict[str, Any]:
    workspace = load(Path(request["package"]), request["environment"], request["root"], request["lake"])
    operator, lake = workspace.operator(request["operator"]), Lake.of(workspace.settings)
    engine = computing(workspace.settings)
    engine.check_deployed(operator, lake)
    began = savepoints.find(Lake(request["original"]), request["savepoint"]).manifest.deployed
    change = plan(began, operator)
    refused = {"rebuild"} if request["forward_only"] else {"rebuild", "forward-only"}
    anew = request["rebuild"] and change.verdict in refused
    if anew:
        _begin_anew(operator.name, lake)
    else:
        engine.take_over(operator, lake)
        upgrade(operator, lake, forward_only=request["forward_only"], why="for an experiment")
    results = asdict(Results.of(operator))
    return {"version": operator.version, "differs": list(_differs(change)), "anew": anew, "results": results}


def _begin_anew(operator: str, lake: Lake) -> None:
    """Remove state and outputs of an arm, so that its stream computes all input. Removes the timelines last: they show that the arm was forked."""
    deployed = Timeline.current(lake, operator).identity.deployed()
    for table in deployed.tables if deployed is not None else ():
        remove(lake.output(table))
        remove(lake.output(f"{table}__current"))
    remove(lake.internal("operators", operator, "timelines"))


def _differs(change: Plan) -> Iterator[str]:
    """The differences between the code and the definition in the savepoint, in words."""
    for difference in change.changes:
        yield f"{difference.where}: {difference.before or 'nothing'} -> {difference.after or 'nothing'}"
    for name, how in change.code:
        yield f"{name}: {how}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
