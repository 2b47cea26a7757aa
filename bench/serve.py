"""Results of a million campaigns: asked of ``floodmark serve``, and of Redis, into which a delivery brings them.

    python bench/serve.py [EVENTS CAMPAIGNS [CASE]...]

One stream of the embedded engine counts views per campaign and ten seconds, and revises them. It runs alone, then beside a service that is asked 500 times
a second by key, then beside a delivery to Redis, which is asked as often. Events per second count until all results can be asked. A question's time runs
from the moment at which it was due, so that one that waits for another counts its wait; *answered* is the time from when it was sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import data
import psutil
from deltalake import DeltaTable

import floodmark as fm
from floodmark.core.time import describe
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries
from floodmark.spec.assets.delivery import routes

EVENTS, CAMPAIGNS, FILES, BATCHES = 3_000_000, 1_000_000, 24, 8
RATE, CONNECTIONS, STEADY = 500, 8, 20_000
_TABLE = "views"
FIRST = -10
"""Niceness of what answers, and of what asks: they come before the stream and before other programs of the machine."""


@fm.operator
def views(events: fm.Stream[data.AdEvent]) -> fm.Stream:
    """Views per campaign and ten seconds, which late ones revise."""
    seen = events.filter("kind = 'view'").with_columns(campaign=f"CAST(floor(ad / {data.ADS_PER_CAMPAIGN}) AS BIGINT)")
    return (
        seen.key_by("campaign")
        .window(fm.Tumbling("10 seconds"), allowed_lateness="1 minute")
        .aggregate(views=fm.count())
    )


# ---- what runs beside the stream


def first(command: list[str], **pipes: Any) -> subprocess.Popen[str]:
    """A program that comes first, where this user may say so.

    Linux gives each session a share of the processors, whatever the niceness of its programs: so the program has a session of its own, whose
    share is set as well.
    """

    def come_first() -> None:
        if os.geteuid() == 0:
            os.nice(FIRST)
            with suppress(OSError):  # a kernel without shares of sessions
                Path("/proc/self/autogroup").write_text(f"{FIRST}")

    return subprocess.Popen(command, start_new_session=True, preexec_fn=come_first, text=True, **pipes)  # noqa: PLW1509 - no threads yet


def beside_serve(lake: str, folder: str) -> None:
    """A service, until it is killed."""
    from floodmark.serve.server import put_answers_first, serving
    from floodmark.serve.service import Service
    from floodmark.serve.tokens import Tokens

    source = data.source(Path(folder))
    workspace = fm.Workspace(sources=[source], operators=[views], settings=fm.Settings(lake=lake, engine="embedded"))
    with serving(Service(workspace, Lake(lake), Path(folder), apart=True), Tokens([]), "127.0.0.1", 0) as url:
        put_answers_first()
        print(url, flush=True)
        time.sleep(1e6)


def beside_redis(lake: str, url: str) -> None:
    """A delivery, until it is killed."""
    from floodmark.deliveries.run import deliver

    (route,) = routes(views, [fm.ToRedis(url)], "bench")
    while not Lake(lake).there:
        time.sleep(0.05)
    deliver(route, Lake(lake), on_delivery=lambda one: print(one, file=sys.stderr, flush=True))


# ---- asking


async def ask(requests: list[bytes], connect: Any, read: Any, stop: asyncio.Event) -> list[tuple[float, float]]:
    """Ask at a fixed rate over some connections until stopped; of each question the seconds from when it was due until it was sent, and was answered."""
    spent: list[tuple[float, float]] = []
    begun, number = time.perf_counter(), 0

    async def one() -> None:
        nonlocal number
        reader, writer = await connect()
        while not stop.is_set():
            due, number = begun + number / RATE, number + 1
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            late = time.perf_counter() - due
            writer.write(random.choice(requests))  # noqa: S311 - as above
            await read(reader)
            spent.append((late, time.perf_counter() - due))
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return spent


async def read_http(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    assert await reader.readexactly(int(length.split(b":")[1]))


async def await_copy(request: bytes, connect: Any) -> None:
    """Wait until the service has a copy of the output; until then it answers 503."""
    while True:
        reader, writer = await connect()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        if head.startswith(b"HTTP/1.1 200"):
            return
        assert head.startswith(b"HTTP/1.1 503"), head
        await asyncio.sleep(0.05)


async def read_redis(reader: asyncio.StreamReader) -> None:
    size = int((await reader.readline())[1:])
    if size >= 0:
        await reader.readexactly(size + 2)


def asking(kind: str, address: str, keys: str) -> None:
    """A client in a process of its own, until its input ends; prints seconds of the questions."""
    some = json.loads(Path(keys).read_text())
    if kind == "serve":
        host, port = address.removeprefix("http://").split(":")
        paths = [
            "/v1/outputs/views?" + urlencode({f"key.{name}": value for name, value in key.items()}) for key in some
        ]
        requests = [f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for path in paths]
        connect, read = lambda: asyncio.open_connection(host, int(port)), read_http
    else:
        names = [f"views:{json.dumps(key, separators=(',', ':'))}" for key in some]
        requests = [f"*2\r\n$3\r\nGET\r\n${len(name)}\r\n{name}\r\n".encode() for name in names]
        connect, read = lambda: asyncio.open_unix_connection(address), read_redis

    async def run() -> tuple[float, list[tuple[float, float]]]:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
        if kind == "serve":
            await await_copy(requests[0], connect)
        begun = time.perf_counter()
        times = await ask(requests, connect, read, stop)
        return time.perf_counter() - begun, times

    seconds, times = asyncio.run(run())
    print(json.dumps({"seconds": seconds, "times": times}))


# ---- the measurement


def a_thousand_keys(logs: Path) -> str:
    """A file with keys that have results."""
    file = logs / "keys.json"
    rng = random.Random(1)  # noqa: S311 - a thousand keys by chance
    first = data.START_MS // 10_000 * 10_000
    made = []
    for _ in range(1_000):
        start = first + rng.randrange(30) * 10_000
        instants = {"window_start": describe_z(start), "window_end": describe_z(start + 10_000)}
        made.append({"campaign": rng.randrange(CAMPAIGNS), **instants})
    file.write_text(json.dumps(made))
    return str(file)


def describe_z(instant: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant / 1000))


def quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * q))] * 1000, 2)
        for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }


def measured(case: str, sail: Sail, logs: Path, events: int) -> dict[str, Any]:
    """One run of the stream, and of what is beside it: as fast as it goes, or with 20,000 events a second."""
    system, _, steady = case.partition(" ")
    with TemporaryDirectory(prefix="bench-") as path:
        lake = Lake(f"{path}/lake", logs=str(logs / "lake"))
        Path(lake.root).mkdir()
        child = client = server = None
        address = ""
        if system == "redis":
            command = ["redis-server", "--port", "0", "--unixsocket", f"{path}/r.sock", "--save", ""]
            server = first(command, stdout=subprocess.DEVNULL)
            address = f"{path}/r.sock"
            time.sleep(1)
        if system != "alone":
            where = f"unix://{address}" if system == "redis" else f"{path}/copies"
            command = [sys.executable, __file__, f"beside-{system}", lake.root, where]
            child = first(command, stdout=subprocess.PIPE)
            address = address or child.stdout.readline().strip()
            time.sleep(2 if system == "redis" else 0)
        begun, states = time.perf_counter(), []

        def on_batch(info: Any) -> None:
            nonlocal client
            states.append(info.seconds)
            if steady:
                time.sleep(max(0.0, begun + len(states) * events / FILES / STEADY - time.perf_counter()))
            if len(states) == 2 and system != "alone":
                command = [sys.executable, __file__, "asking", system, address, a_thousand_keys(logs)]
                client = first(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        run_unbounded(
            sail,
            views,
            lake,
            until_caught_up=True,
            files_per_batch=1 if steady else FILES // BATCHES,
            on_batch=on_batch,
        )
        stream = time.perf_counter() - begun
        newest = entries.newest(lake.output(_TABLE))
        while system != "alone" and reached(system, address) < newest:
            time.sleep(0.02)
        whole = time.perf_counter() - begun
        results = DeltaTable(lake.output(f"{_TABLE}__current")).to_pyarrow_dataset().count_rows()
        row: dict[str, Any] = {
            "system": case,
            "events": events,
            "results": results,
            "stream s": round(stream, 1),
            "until asked s": round(whole, 1),
            "events/s": round(events / whole),
        }
        if client is not None:
            time.sleep(5)
            answered = json.loads(client.communicate("")[0])
            times = answered["times"]
            row |= {
                "questions": len(times),
                "questions/s": round(len(times) / answered["seconds"]),
                **{f"{n} ms": v for n, v in quantiles([time for _, time in times]).items()},
                **{f"answered {n} ms": v for n, v in quantiles([time - late for late, time in times]).items()},
            }
        for name, process in (("beside CPU s", child), ("server CPU s", server)):
            if process is not None:
                parts = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                row[name] = round(sum(sum(part.cpu_times()[:2]) for part in parts), 1)
                row[name.replace("CPU s", "MB")] = round(sum(part.memory_full_info().uss for part in parts) / 1e6)
                process.kill()
                process.wait()
        return row


def reached(system: str, address: str) -> int:
    """The version of the output that can be asked."""
    if system == "redis":
        import redis

        content = redis.Redis(unix_socket_path=address).get("_floodmark:views_to_redis")
        return -1 if content is None else json.loads(json.loads(content)["position"])["version"]
    import urllib.request

    with urllib.request.urlopen(f"{address}/v1/outputs") as answer:  # noqa: S310 - of this machine
        as_of = json.load(answer)["outputs"][0]["as_of"]
    return -1 if as_of is None else as_of["commit"]


def main(events: int, campaigns: int, cases: list[str]) -> None:
    """All systems over the same events."""
    sail = Sail()
    with TemporaryDirectory(prefix="bench-") as path, closing(sail):
        logs = Path(path)
        data.generate(logs, events, campaigns, FILES)
        land(lambda: sail, data.source(logs / "inbox"), Lake(str(logs / "lake")), end=True)
        print(f"landed {events:,} at {describe(int(time.time() * 1000))}; load {os.getloadavg()[0]:.1f}", flush=True)
        for case in cases:
            print(json.dumps(measured(case, sail, logs, events) | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["beside-serve", lake, folder]:
            beside_serve(lake, folder)
        case ["beside-redis", lake, url]:
            beside_redis(lake, url)
        case ["asking", kind, address, keys]:
            asking(kind, address, keys)
        case numbers:
            events, campaigns = (
                int(number.replace("_", "")) for number in numbers[:2] or (f"{EVENTS}", f"{CAMPAIGNS}")
            )
            main(events, campaigns, numbers[2:] or ["alone", "serve", "redis", "serve steady", "redis steady"])
