"""Seconds of each verb on a local disk, in a bucket, and on a cluster with its lake in a bucket: PYTHONPATH=.:tests/support python bench/verb_costs.py.

    python bench/verb_costs.py [--columns disk bucket cluster] [--parts rows savepoints lakes supervised]

Each verb is a program of its own, on the shop of ``floodmark init``: by the embedded engine on a disk and in a bucket, by Spark on a standalone cluster of two
workers of one core each. Verbs of streams that run by themselves are timed until what they ask for is there. The store is the S3 server of the tests, on this
machine, behind a proxy that counts requests; of a store that is far away each request takes its round trip more, but those that are asked at the same time.
A verb that fails is shown with the first words of its error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import s3_server
import spark_cluster

_OPERATOR = "hourly_sales"
_OLD, _NEW = 'cents=sum("cents"))', 'cents=sum("cents")).with_columns(mean="cents / orders")'
LAND = ("land", "orders")
STREAM = ("run", _OPERATOR, "--unbounded", "--until-caught-up")
_SAVE = ("savepoint", "create", _OPERATOR)
PARTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "rows": (
        ("validate",),
        ("explain", _OPERATOR),
        ("explain", _OPERATOR, "--physical"),
        LAND,
        ("run", _OPERATOR, "--preview"),
        ("run", _OPERATOR),
        STREAM,
        ("status",),
        ("sql", f"SELECT country, sum(cents) AS cents FROM {_OPERATOR} GROUP BY country"),
        ("partitions", _OPERATOR),
        ("freeze", _OPERATOR, "--before", "2025-03-01"),
        ("thaw", _OPERATOR),
        ("quarantine", "show", "orders"),
        ("quarantine", "replay", "orders"),
        ("check", _OPERATOR),
        ("gate", "list"),
        ("watermark", "orders"),
        ("prove", _OPERATOR, "--cuts", "3"),
        ("diff", _OPERATOR, f"{_OPERATOR}@1"),
    ),
    "savepoints": (
        LAND,
        STREAM,
        _SAVE,
        ("savepoint", "list"),
        ("savepoint", "show", "{savepoint}"),
        ("savepoint", "verify", "{savepoint}"),
        ("savepoint", "export", "--canonical", "{savepoint}", "{beside}/exported"),
        ("fork", _OPERATOR, "--from", "{savepoint}", "--into", "{beside}/fork"),
        ("plan", _OPERATOR),
        ("apply", _OPERATOR),
        ("rollback", _OPERATOR),
        ("rescale", _OPERATOR, "--key-groups", "64"),
        (*STREAM, "--from-scratch"),
    ),
    "lakes": (
        LAND,
        STREAM,
        ("replicate", "orders", "--to", "{beside}/replica"),
        ("maintain",),
        ("forget", "country=PT"),
        ("move", _OPERATOR, "--into", "{beside}/moved"),
    ),
    "supervised": (
        LAND,
        ("start", _OPERATOR),
        _SAVE,
        ("logs", _OPERATOR),
        ("alerts",),
        ("restart", _OPERATOR),
        ("experiment", "start", "trial", "--of", _OPERATOR, "--arm", "stream=@current", "--arm", "here=."),
        ("experiment", "show", "trial"),
        ("experiment", "report", "trial"),
        ("experiment", "stop", "trial"),
        ("experiment", "clean", "trial"),
        ("stop", _OPERATOR),
    ),
}
"""Part -> its verbs, in a shop of its own; what a part before has measured is not measured again."""
_START_SECONDS = 180
_RUNNING = re.compile(r"running, process (\d+), micro-batch")
_ERROR = re.compile(r"\b[A-Z]+-\d{3}\b|Traceback")
"""What a verb that fails says; the status of ``diff`` and of a report that shows differences is 1 too."""
_PROGRAM = (sys.executable, "-m", "floodmark.cli.main")


@dataclass(slots=True)
class Shop:
    """A workspace, and where its lake lies.

    Args:
        folder: of the workspace.
        lakes: folder or URI in which the lake and what verbs put beside it lie.
        environment: of its programs.
        names: what stands for words in braces.
    """

    folder: Path
    lakes: str
    environment: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one verb to its end."""
        command = [*_PROGRAM, "--lake", f"{self.lakes}/lake", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def asked(self, *words: str) -> Any:
        """What a verb answers as JSON."""
        done = self.call("--json", *words)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a file of the workspace."""
        file = self.folder / name
        file.write_text(file.read_text().replace(old, new))

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """A supervisor, at work while the context lasts."""
        command = [*_PROGRAM, "--lake", f"{self.lakes}/lake", "supervise"]
        with (self.folder / "supervisor.log").open("w") as log:
            supervisor = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            supervisor.terminate()
            supervisor.wait()


@dataclass(frozen=True, slots=True)
class Measured:
    """What one verb took.

    Args:
        verb: its words.
        seconds: until it had ended, and what it asked a supervisor for was there.
        processor: seconds of processors of the program and what it started; not of workers and supervisor.
        requests: to the store.
        failure: first words of its error; empty if it ended well.
    """

    verb: str
    seconds: float
    processor: float
    requests: int
    failure: str


def _in_turn(shop: Shop, part: str, proxy: s3_server.Proxy) -> Iterator[Measured]:
    """The verbs of a part in turn."""
    with shop.supervised() if part == "supervised" else nullcontext():
        for verb in PARTS[part]:
            if verb[0] in {"plan", "rollback"}:
                shop.edit("operators/orders.py", *((_OLD, _NEW) if verb[0] == "plan" else (_NEW, _OLD)))
            words = [word.format_map(shop.names) for word in verb]
            running = _RUNNING.match(_state(shop)) if verb[0] == "restart" else None
            proxy.plan()
            start, used = time.perf_counter(), _used()
            done = shop.call(*words)
            failure = done.stderr.strip() if done.returncode and _ERROR.search(done.stderr) else ""
            if verb[0] in {"start", "restart"} and not failure:
                failure = _await_running(shop, running[1] if running else "")
            seconds, processor = time.perf_counter() - start, _used() - used
            yield Measured(" ".join(verb), seconds, processor, len(proxy.requests()), failure)
            if verb == _SAVE and not failure:
                shop.names["savepoint"] = str(shop.asked("savepoint", "list")["savepoints"][-1]["id"])


def _await_running(shop: Shop, before: str) -> str:
    """Wait until another process than before runs the stream and has committed a micro-batch; the error, if none does."""
    until, state = time.monotonic() + _START_SECONDS, ""
    while time.monotonic() < until:
        state = _state(shop)
        process = _RUNNING.match(state)
        if process is not None and process[1] != before:
            return ""
    return f"not running: {state}"


def _state(shop: Shop) -> str:
    streams = shop.asked("status").get("streams") or [{"state": ""}]
    return str(streams[0]["state"])


def _used() -> float:
    """Seconds of processors that ended child processes have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def opened(
    column: str, server: s3_server.Server, proxy: s3_server.Proxy, *, cores: int = 1, archived: bool = False
) -> Iterator[tuple[Shop, spark_cluster.Cluster | None]]:
    """The shop of a column, and the cluster on which its verbs run, if they run on one.

    Args:
        column: of the table.
        server: of the bucket.
        proxy: before the server.
        cores: of the cluster on which verbs run; each worker has one.
        archived: whether executors of the cluster use the class archive of this user.
    """
    with ExitStack() as stack:
        cluster = None
        folder = Path(stack.enter_context(TemporaryDirectory()))
        environment = {**os.environ, "FLOODMARK_ENGINE": "embedded"}
        if column != "disk":
            environment |= s3_server.environment(proxy.url)
        if column == "cluster":
            variables, folders = s3_server.environment(proxy.url), (folder / "cluster", folder / "hidden")
            cluster = stack.enter_context(spark_cluster.cluster(*folders, variables, archived=archived))
            settings = spark_cluster.archived_settings() if archived else dict(spark_cluster.SETTINGS)
            settings |= {"spark.cores.max": str(cores)}
            environment |= {
                "FLOODMARK_ENGINE": "spark",
                "FLOODMARK_MASTER": cluster.master,
                "FLOODMARK_SPARK": json.dumps(list(settings.items())),
                "SPARK_SECRET": spark_cluster.SECRET,
            }
            folder = cluster.shared
        subprocess.run([*_PROGRAM, "init", "shop"], cwd=folder, check=True, capture_output=True)
        lakes = str(folder) if column == "disk" else server.bucket()
        shop = Shop(folder / "shop", lakes, environment, {"beside": lakes})
        if column == "cluster":
            own = 'spark=(*variables.spark, ("spark.authenticate.secret", Env("SPARK_SECRET"))),\n        memory=300,'
            shop.edit("resources/settings.py", "spark=variables.spark,", own)
            shop.edit("resources/settings.py", "import Settings", "import Env, Settings")
        yield shop, cluster


def measured(column: str, part: str) -> Iterator[Measured]:
    """What the verbs of a part take in a column, in turn; each is shown on stderr as well."""
    with s3_server.running() as server, s3_server.proxied(server) as proxy, opened(column, server, proxy) as (shop, _):
        for took in _in_turn(shop, part, proxy):
            shown = f"{took.seconds:.1f} s, {took.processor:.1f} of processors, {took.requests:,} requests"
            sys.stderr.write(f"{column} {took.verb}: {shown} {took.failure[-1000:]}\n")
            yield took


def main() -> None:
    """Measure, and print a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", nargs="+", default=["disk", "bucket", "cluster"])
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    options = parser.parse_args()
    rows: dict[str, dict[str, Measured]] = {}
    for part, column in product(options.parts, options.columns):
        for took in measured(column, part):
            rows.setdefault(took.verb, {}).setdefault(column, took)
    print(f"load {os.getloadavg()[0]:.1f}")
    heads = [f"{column}{what}" for what in (", s", ": requests") for column in options.columns]
    print("| verb | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for verb, columns in rows.items():
        took = [columns[column] for column in options.columns]
        cells = ["fails" if of.failure else f"{of.seconds:.1f}" for of in took]
        print(f"| `{verb}` | " + " | ".join([*cells, *(f"{of.requests:,}" for of in took)]) + " |")


if __name__ == "__main__":
    main()
