"""The program of a worker process: says that it has started, then computes key groups of a bounded run, bucket by bucket, until its standard input ends."""

from __future__ import annotations

import json
import os
import sys
from typing import BinaryIO

from pyspark import cloudpickle

from floodmark.core.errors import FloodmarkError
from floodmark.engines.embedded.bounded.files import Bucket, fill


def main() -> None:
    """Read the work and answer it; then read one bucket per line, and answer each with its counts, or with the error."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that output of the user's functions does not mix with answers
    work = cloudpickle.loads(requests.read(int(requests.readline())))
    _answer(answers, {})
    for line in iter(requests.readline, b""):
        try:
            late, dropped = fill(work, Bucket(**json.loads(line)))
        except FloodmarkError as error:
            fields = [getattr(error, name) for name in ("where", "expected", "got", "fix", "code")]
            _answer(answers, {"error": [type(error).__name__, *fields]})
        except Exception as error:  # noqa: BLE001 - the parent process raises the error
            _answer(answers, {"failed": f"{type(error).__name__}: {error}"})
        else:
            _answer(answers, {"late": late, "dropped": dropped})


def _answer(answers: BinaryIO, content: dict[str, object]) -> None:
    answers.write(json.dumps(content).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
