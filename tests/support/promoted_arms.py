"""Experiments of a stream on the embedded engine whose arm is promoted: the verbs are floodmark's, the drivers are records in the control store, and the test computes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import forked
from background import in_background
from events import source
from processes import paths
from redefined import BY_VERSION

from floodmark import Operator, Settings, Workspace
from floodmark.control.delivery import experiments, promotion
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.requests import ExperimentRequest, PromotionRequest

_LONG_SECONDS, _POLL_SECONDS = 86_400, 0.05
_MODULE = '''"""A version of the stream."""
from promoted_arms import workspace_of


def workspace(environment="dev"):
    """It alone."""
    return workspace_of("{version}")
'''


def workspace_of(version: str, **settings: Any) -> Workspace:
    """The workspace of a version of a stream."""
    code = BY_VERSION[version]
    return Workspace(sources=[source([])], operators=[code], settings=Settings(engine="embedded", **settings))


class Fleets:
    """The fleets of a stream of a lake, one for each version.

    Args:
        folder: new, of the workspace and the control store.
        lake: of the stream.
    """

    def __init__(self, folder: Path, lake: Lake) -> None:
        self.folder, self.lake = folder, lake
        folder.mkdir()
        (folder / "pyproject.toml").write_text('[tool.floodmark]\ndefinitions = "streams_of_test"\n')
        self._control = f"sqlite:///{folder}/control.db"

    def of(self, code: Operator) -> Fleet:
        """The fleet whose current code has a version of the stream."""
        (self.folder / "streams_of_test.py").write_text(_MODULE.format(version=code.version))
        workspace = workspace_of(code.version, lake=self.lake.root, control=self._control)
        return Fleet(workspace=workspace, root=self.folder, say=lambda _: None)

    def promote(
        self, code: Operator, other: Operator, compute: Callable[[Operator, Lake], object], cutover: str
    ) -> None:
        """Let an experiment begin whose arm ``b`` has another definition, compute in all three lakes, and promote it.

        Args:
            code: that runs.
            other: definition of the arm, which resumes from the stream's state, or computes all input anew where it cannot.
            compute: runs a definition in a lake until it is caught up.
            cutover: of the promotion, where there can be one.
        """
        before = self.of(code)
        before.store.lease(LEASE, "test", _LONG_SECONDS)
        before.deploy(code.name, before.pack(), code.version, "running")
        with _drivers(before), patch.object(experiments, "subprocess", SimpleNamespace(run=_prepare)):
            fleet, name = self.of(other), f"arms_{len(before.store.actions(limit=1000))}"
            try:
                made = experiments.start(fleet, name, code.name, ExperimentRequest(forward_only=True))
            except LifecycleError as error:  # a column less
                if error.code != "LIFECYCLE-094":
                    raise
                made = experiments.start(fleet, name, code.name, ExperimentRequest(rebuild=True))
            compute(code, self.lake)
            for arm in made.arms:
                compute(BY_VERSION[arm.version], experiments.of(fleet, arm).lake)
            cutover = "" if made.arm("b").anew else cutover
            made, action = promotion.promote(
                fleet, name, PromotionRequest(arm="b", soak=0, patience=600, cutover=cutover)
            )
            assert action.step == "done", action
            experiments.clean(fleet, name)


def _prepare(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, **_: Any
) -> subprocess.CompletedProcess[str]:
    """The process that prepares an arm, forked."""
    environment = {**env, "PYTHONPATH": f"{env['PYTHONPATH']}:{paths()}"}
    return forked.run(command, env=environment, cwd=cwd)


@contextmanager
def _drivers(fleet: Fleet) -> Iterator[None]:
    """Records of drivers that run as their deployments want it, and do nothing."""
    over, store = threading.Event(), fleet.store

    def run() -> None:
        while not over.wait(_POLL_SECONDS):
            wanted = {one.stream: one for one in store.deployments()}
            for driver in store.living():
                one = wanted.pop(driver.stream, None)
                if one is None or (one.desired, one.version) != ("running", driver.version):
                    store.end(driver.id, "stopped", "stopped at a micro-batch boundary")
            for one in wanted.values():
                if one.desired == "running":
                    store.update(store.begin(one, "logs").id, state="running", batch=0, heard=True)

    running = in_background(run)
    try:
        yield
    finally:
        over.set()
        running.result()
