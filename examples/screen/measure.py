"""Two pipelines feed two screens from the same orders; one pipeline is killed on the way. Measured is the time from an order to the screen.

python measure.py --orders 100 --every 0.1
python measure.py --orders 10 --one-by-one

One by one, an order is sent once the one before it is on the second screen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

CATEGORIES = ("books", "shoes", "toys")
PATIENCE_SECONDS = 60


class Pipeline:
    """Landing, stream and service over a lake of its own, each a process."""

    def __init__(self, lake: str) -> None:
        self.lake, self.port = lake, _free_port()
        _floodmark("land", "orders", "--lake", lake).wait()  # a stream begins once there is a log
        self.processes = [
            _floodmark("land", "orders", "--continuous", "--lake", lake),
            _floodmark("run", "sales", "--unbounded", "--lake", lake),
            _floodmark("serve", "sales", "--lake", lake, "--port", str(self.port)),
        ]
        self.delays = dict[int, float]()

    def sums(self) -> dict[str, tuple[int, int]]:
        """Category -> (orders, cents) on the screen; empty while there is none."""
        with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{self.port}/v1/outputs/sales") as answer:
            return {row["category"]: (row["orders"], row["cents"]) for row in json.load(answer)["rows"]}
        return {}

    def see(self, sent: dict[int, float]) -> int:
        """Note which orders the screen has by now; returns their number."""
        seen, now = sum(orders for orders, _ in self.sums().values()), time.monotonic()
        for number in range(len(self.delays), seen):
            self.delays[number] = now - sent[number]
        return seen

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """End its processes."""
        for process in self.processes:
            process.send_signal(how)
        for process in self.processes:
            process.wait()


def _floodmark(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "floodmark.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def order(number: int) -> tuple[str, int]:
    """Category and cents of an order."""
    return CATEGORIES[number % 3], 100 + 7 * number % 900


def send(number: int) -> None:
    """A shop writes an order into a file of its own, whole at once."""
    category, cents = order(number)
    draft = Path(f".{number}.draft")
    draft.write_text(f"at,category,cents\n{datetime.now(UTC).isoformat()},{category},{cents}\n")
    draft.rename(Path("inbox", f"{number:06}.csv"))


@contextmanager
def running() -> Iterator[list[Pipeline]]:
    """Two pipelines, of which those that are left end with this block."""
    with ExitStack() as stack:
        pipelines = [Pipeline("lake_a"), Pipeline("lake_b")]
        for pipeline in pipelines:
            stack.callback(pipeline.end)
        yield pipelines


def main(orders: int, every: float, *, one_by_one: bool = False) -> None:
    """Send orders, kill a pipeline half-way, and print how long each order took."""
    Path("inbox").mkdir(exist_ok=True)
    sent = {0: time.monotonic()}
    send(0)
    with running() as (doomed, survivor):
        pipelines = [doomed, survivor]
        _wait(lambda: all(pipeline.see(sent) for pipeline in (doomed, survivor)))
        for pipeline in pipelines:
            pipeline.delays[0] = 0.0  # the start of the processes is not measured
        for number in range(1, orders):
            if number == orders // 2:
                doomed.end(signal.SIGKILL)
                pipelines.remove(doomed)
            sent[number] = time.monotonic()
            send(number)
            if one_by_one:
                _wait(lambda number=number: survivor.see(sent) > number)
            while time.monotonic() < sent[number] + every:
                for pipeline in pipelines:
                    pipeline.see(sent)
        _wait(lambda: survivor.see(sent) == orders)
        expected = Counter[str]()
        for number in range(orders):
            expected[order(number)[0]] += order(number)[1]
        shown = {category: cents for category, (_, cents) in survivor.sums().items()}
        delays = sorted(survivor.delays[number] for number in range(1, orders))
    print(f"{orders} orders; the first pipeline was killed after {orders // 2}")
    print(f"sums on the screen are those of the orders: {shown == dict(expected)}")
    print(f"from order to screen: half within {delays[len(delays) // 2]:.2f} s, all within {delays[-1]:.2f} s")
    if shown != dict(expected):
        sys.exit(1)


def _wait(is_there: object) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_there():  # type: ignore[operator]  # a function without arguments
        if time.monotonic() > until:
            sys.exit("the screen has not got there within a minute")
        time.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=100)
    parser.add_argument("--every", type=float, default=0.1, help="seconds from order to order")
    parser.add_argument(
        "--one-by-one", action="store_true", help="each order waits for the screen of the one before it"
    )
    options = parser.parse_args()
    main(options.orders, options.every, one_by_one=options.one_by_one)
