"""Seconds of verbs on a local disk and in a bucket, and their requests there: PYTHONPATH=.:tests/support python bench/bucket_verbs.py.

Each verb is a program of its own, on the shop of ``floodmark init``, by the embedded engine. The store is the S3 server of the tests, on this machine,
behind a proxy that counts requests; of a store that is far away each request takes its round trip more, but those that are asked at the same time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import s3_server

_OPERATOR = "hourly_sales"
_OLD, _NEW = 'cents=sum("cents"))', 'cents=sum("cents")).with_columns(mean="cents / orders")'
_VERBS: tuple[tuple[str, ...], ...] = (
    ("land", "orders"),
    ("run", _OPERATOR),
    ("run", _OPERATOR, "--unbounded", "--until-caught-up"),
    ("status",),
    ("savepoint", "create", _OPERATOR),
    ("savepoint", "list"),
    ("plan", _OPERATOR),
    ("apply", _OPERATOR),
    ("rollback", _OPERATOR),
    ("run", _OPERATOR, "--unbounded", "--until-caught-up", "--from-scratch"),
    ("partitions", _OPERATOR),
    ("maintain",),
)


def _shop(folder: Path) -> Path:
    subprocess.run([*_PROGRAM, "init", "shop"], cwd=folder, check=True, capture_output=True)
    return folder / "shop"


_PROGRAM = (sys.executable, "-m", "floodmark.cli.main")


def _timed(shop: Path, lake: str) -> Iterator[tuple[str, float, float]]:
    """(verb, seconds, seconds of processors) of all verbs in turn."""
    operators = shop / "operators" / "orders.py"
    original = operators.read_text()
    for verb in _VERBS:
        if verb[0] in {"plan", "rollback"}:
            operators.write_text(original.replace(_OLD, _NEW) if verb[0] == "plan" else original)
        begun, used = time.perf_counter(), _used()
        done = subprocess.run(
            [*_PROGRAM, "--lake", lake, *verb],
            cwd=shop,
            env={**os.environ, "FLOODMARK_ENGINE": "embedded"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
        yield " ".join(verb), time.perf_counter() - begun, _used() - used


def _used() -> float:
    """Seconds of processors that ended child processes have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a table of Markdown."""
    with s3_server.running() as server, s3_server.proxied(server) as proxy, TemporaryDirectory() as folder:
        shop = _shop(Path(folder))
        disk = {verb: measured for verb, *measured in _timed(shop, f"{folder}/lake")}
        os.environ.update(s3_server.environment(proxy.url))
        print(
            "| verb | disk, s | bucket, s | processor on disk, s | in the bucket, s | requests |\n|---|---|---|---|---|---|"
        )
        proxy.plan()
        for verb, seconds, used in _timed(shop, f"{server.bucket()}/lake"):
            wall, processor = disk[verb]
            asked = len(proxy.requests())
            print(f"| `{verb}` | {wall:.1f} | {seconds:.1f} | {processor:.1f} | {used:.1f} | {asked:,} |", flush=True)
            proxy.plan()


if __name__ == "__main__":
    main()
