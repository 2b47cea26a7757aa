"""``floodmark up`` as a user starts it, on a free port, and its GraphQL interface."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import psutil
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = Path(__file__).parent / "quick_daemon"
LOCATION = "definitions.defs"
_LOOK_SECONDS = 0.75
"""Between two looks at a run: each costs Dagster's server 10 ms and more."""


class NotLaunchedError(Exception):
    """Dagster did not take the run."""


@dataclass
class Server:
    """A running Dagster; one whose daemon a test has killed ends by itself."""

    url: str
    process: subprocess.Popen[str]
    state: Path
    location: str = LOCATION
    killed: bool = False

    def kill(self, *words: str) -> int:
        """SIGKILL to its processes whose command has all of these words; their number."""
        mine = psutil.Process(self.process.pid).children(recursive=True)
        chosen = [one for one in mine if set(words) <= set(_words(one))]
        for one in chosen:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        return len(chosen)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Dagster's daemon stands still: what its sensors have reported last stays the newest."""
        mine = psutil.Process(self.process.pid).children(recursive=True)
        daemons = [one for one in mine if "dagster._daemon" in _words(one)]
        assert daemons
        for one in daemons:
            one.suspend()
        try:
            yield
        finally:
            for one in daemons:
                one.resume()

    def fell(self) -> None:
        """SIGKILL to ``floodmark up`` with its supervisor, to all of its Dagster, and to the looks at rollouts; the streams live on."""
        mine = psutil.Process(self.process.pid)
        self.killed = True
        for one in [mine, *mine.children(recursive=True)]:
            if one == mine or any(
                "dagster" in word or word == "floodmark.control.delivery.rollouts" for word in _words(one)
            ):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of a GraphQL answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def launch(self, *assets: str, tags: dict[str, str], config: Any = None) -> str:
        """Start a run; its id."""
        selector = {
            "assetSelection": [{"path": name.split("/")} for name in assets],
            "assetCheckSelection": [],
        }
        return self.launch_job("__ASSET_JOB", config or {}, tags, **selector)

    def launch_job(self, job: str, config: Any, tags: dict[str, str] | None = None, **selection: Any) -> str:
        """Start a run of a job; its id."""
        selector = {
            "repositoryLocationName": self.location,
            "repositoryName": "__repository__",
            "jobName": job,
            **selection,
        }
        metadata = {"tags": [{"key": k, "value": v} for k, v in (tags or {}).items()]}
        parameters = {"selector": selector, "runConfigData": config, "executionMetadata": metadata}
        query = """mutation ($p: ExecutionParams!) { launchRun(executionParams: $p) {
            __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
            ... on RunConfigValidationInvalid { errors { message } } } }"""
        found = self.ask(query, p=parameters)["launchRun"]
        if found["__typename"] != "LaunchRunSuccess":
            raise NotLaunchedError(found)
        return str(found["run"]["runId"])

    def runs(self, job: str) -> list[dict[str, Any]]:
        """Of a job, newest first: ``runId`` and ``status``."""
        query = """query ($f: RunsFilter!) { runsOrError(filter: $f, limit: 30) { ... on Runs {
            results { runId status tags { key value } } } } }"""
        found: list[dict[str, Any]] = self.ask(query, f={"pipelineName": job})["runsOrError"]["results"]
        return found

    def try_launch(self, *assets: str, tags: dict[str, str]) -> str | None:
        """As ``launch``; None while that is not possible."""
        try:
            return self.launch(*assets, tags=tags)
        except NotLaunchedError:
            return None

    def status(self, run: str) -> str:
        """STARTED, SUCCESS, FAILURE ..."""
        query = "query ($r: ID!) { runOrError(runId: $r) { ... on Run { status } } }"
        return str(self.ask(query, r=run)["runOrError"]["status"])

    def terminate(self, run: str) -> None:
        """As the UI's button does."""
        query = (
            "mutation ($r: [String!]!) { terminateRuns(runIds: $r, terminatePolicy: SAFE_TERMINATE) { __typename } }"
        )
        self.ask(query, r=[run])

    def ended(self, run: str, seconds: float = 240) -> str:
        """Wait for the end of a run; its status."""
        return until(
            lambda: status if (status := self.status(run)) in {"SUCCESS", "FAILURE", "CANCELED"} else None,
            seconds,
            _LOOK_SECONDS,
        )

    def schedule(self, name: str) -> str:
        """RUNNING or STOPPED."""
        query = """query ($s: ScheduleSelector!) { scheduleOrError(scheduleSelector: $s) { ... on Schedule {
            scheduleState { status } } } }"""
        where = {"repositoryLocationName": self.location, "repositoryName": "__repository__", "scheduleName": name}
        return str(self.ask(query, s=where)["scheduleOrError"]["scheduleState"]["status"])

    def backfilled(self, *assets: str, partitions: list[str]) -> str:
        """Launch a backfill of asset partitions and wait for its end; its status."""
        query = """mutation ($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
            __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
        parameters = {"assetSelection": [{"path": name.split("/")} for name in assets], "partitionNames": partitions}
        launched = self.ask(query, p=parameters)["launchPartitionBackfill"]
        if launched["__typename"] != "LaunchBackfillSuccess":
            raise NotLaunchedError(launched)

        def ended() -> str | None:
            status = next(one["status"] for one in self.backfills() if one["id"] == launched["backfillId"])
            return None if status in {"REQUESTED", "CANCELING", "FAILING", "COMPLETING"} else str(status)

        status: str = until(ended, 300, _LOOK_SECONDS)
        return status

    def backfills(self) -> list[dict[str, Any]]:
        """Newest first."""
        query = """{ partitionBackfillsOrError(limit: 10) { ... on PartitionBackfills {
            results { id status partitionNames } } } }"""
        found: list[dict[str, Any]] = self.ask(query)["partitionBackfillsOrError"]["results"]
        return found


def _often(state: Path) -> None:
    """Dagster's settings as ``floodmark up`` writes them, but it looks every second for runs that have ended, and for pools they held."""
    text = (ROOT / "src" / "floodmark" / "orchestration" / "dagster.yaml").read_text()
    state.mkdir(parents=True, exist_ok=True)
    for name in ("poll_interval_seconds", "free_slots_after_run_end_seconds"):
        text, found = re.subn(rf"{name}: \d+", f"{name}: 1", text)
        assert found == 1, name
    (state / "dagster.yaml").write_text(text)


def until(look: Callable[[], Any], seconds: float, every: float = 0.4) -> Any:
    """What ``look`` says once it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(every)
    msg = f"nothing within {seconds} s"
    raise AssertionError(msg)


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.NoSuchProcess:
        return []


@contextmanager
def serving(
    folder: Path,
    state: Path,
    *,
    location: str = LOCATION,
    supervise: bool = False,
    forks: bool = False,
    **variables: str,
) -> Iterator[Server]:
    """``floodmark up`` in a workspace, until the test is done with it; then nothing of it is left. With ``forks`` its drivers are forked."""
    port = free_port()
    command = [sys.executable, "-m", "floodmark.cli.main", "up", "--port", str(port), "--state", str(state)]
    command += [] if supervise else ["--no-supervise"]
    _often(state)
    if forks:
        variables |= forked.starting_forks()
    path = variables.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(QUICK), path]))
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    found = None
    try:
        told = []
        for line in process.stdout or ():
            told.append(line)
            if "its log" in line:
                break
        else:
            raise AssertionError("".join(told))
        found = Server(f"http://127.0.0.1:{port}", process, state, location)
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=300)[0]
        assert "stopped" in rest or (found is not None and found.killed), rest
