"""What arms of an experiment cost the stream beside which they run: how far it is behind its input, alone and with one and two of them.

    python bench/shadow.py [COMMITS]

Ten commits a second land, of 1,000 rows of 100 keys. Each stream is a process of its own on the embedded engine, with a server of its own; an arm is a fork from
a savepoint of the stream, as experiments make it. The lag of a commit goes from its landing to the commit of the micro-batch that has read it. In the
last phase the stream is alone again.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import micro_batch

from floodmark.core.handlers import defer
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.testing.lakes import append

PER_SECOND = 10
WARM = 20
TRIGGER = 0.02
"""Seconds after which a stream that has nothing to read looks again."""


def stream(lake: Lake) -> None:
    """Follow the input until SIGINT, and say when each micro-batch is committed and how many rows it has read."""
    stop, sail = threading.Event(), Sail()
    signal.signal(signal.SIGINT, lambda *_: defer(stop.set))
    run_unbounded(
        sail,
        micro_batch.one,
        lake,
        stop=stop,
        trigger_seconds=TRIGGER,
        on_batch=lambda batch: print(time.time(), batch.rows_in, flush=True),
    )
    sail.close()


@dataclass
class Follower:
    """A process that follows the input.

    Args:
        process: of the stream.
        read: rows so far, with the moment they were all committed.
    """

    process: subprocess.Popen[str]
    read: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])

    def watch(self) -> None:
        """Take down what the process says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, rows = line.split()
            self.read.append((self.read[-1][0] + int(rows), float(at)))

    def reached(self, rows: int) -> float:
        """The moment at which so many rows were committed, for which it waits."""
        while self.read[-1][0] < rows:
            assert self.process.poll() is None, "the stream has ended"
            time.sleep(0.01)
        return next(at for read, at in self.read if read >= rows)


@contextmanager
def following(lake: Lake) -> Iterator[Follower]:
    """A stream that runs meanwhile."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--stream", lake.root, lake.logs or lake.root],
        stdout=subprocess.PIPE,
        text=True,
    )
    found = Follower(process)
    threading.Thread(target=found.watch, daemon=True).start()
    try:
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def landed(lake: Lake, first: int, count: int) -> list[float]:
    """Land so many commits at the rate; the moment of each."""
    path, begin, moments = lake.input(micro_batch.one.inputs[0]), time.time(), list[float]()
    for number in range(count):
        time.sleep(max(0.0, begin + number / PER_SECOND - time.time()))
        append(path, micro_batch.commit(first + number))
        moments.append(time.time())
    return moments


def main() -> None:
    """Measure the phases and print them."""
    count = next((int(text) for text in sys.argv[1:] if text.isdecimal()), 300)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        lake, so_far = Lake(f"{folder}/stream"), 1
        landed(lake, 0, so_far)
        with following(lake) as original:
            for arms in (0, 1, 2, 0):
                original.reached(so_far * micro_batch.ROWS)
                with ExitStack() as running:
                    for arm in range(arms):
                        made = savepoints.create(micro_batch.one.name, lake)
                        root = f"{folder}/{so_far}-{arm}"
                        follower = running.enter_context(following(fork(lake, made, root, fresh=True)))
                        landed(lake, so_far, 1)
                        so_far += 1
                        follower.reached(micro_batch.ROWS)
                    moments = landed(lake, so_far, count + WARM)[WARM:]
                    first = so_far + WARM
                    so_far += count + WARM
                    lags = sorted(
                        original.reached((first + place + 1) * micro_batch.ROWS) - moment
                        for place, moment in enumerate(moments)
                    )
                median, slow = statistics.median(lags) * 1000, lags[int(len(lags) * 0.99)] * 1000
                print(
                    f"{arms} arms: {median:.0f} ms behind in the median, {slow:.0f} at the 99th percentile", flush=True
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stream"]:
        stream(Lake(sys.argv[2], logs=sys.argv[3]))
    else:
        main()
