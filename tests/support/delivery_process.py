"""A delivery in a process of its own, which a test may kill: delivery_process.py LAKE VERSION KIND ADDRESS [TOPIC]."""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from redefined import BY_VERSION
from small_lake import TOTALS

from floodmark import Delivery, Operator, ToFiles, ToKafka, ToRedis, ToSearch, ToSql, ToWebhook
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes

DIES_BEHIND = "DIES_BEHIND_STATEMENT"
"""Variable with the number of the statement of SQL behind which the process is killed."""


def route(code: Operator, kind: str, *address: str) -> Route:
    """The delivery of an operator's first output."""
    made: dict[str, Delivery] = {}
    match kind:
        case "sql":
            made[kind] = ToSql(*address)
        case "redis":
            made[kind] = ToRedis(*address)
        case "search":
            made[kind] = ToSearch(*address)
        case "kafka":
            made[kind] = ToKafka(address[1], address[0])
        case "messages":
            made[kind] = ToKafka(address[1], address[0], transactions=False)
        case "files":
            made[kind] = ToFiles(address[0], format="json", changes=code.outputs[0].revisable)
        case "divided":
            columns = ["key"] if code.outputs[0].revisable else ["key", "value"]
            made[kind] = ToFiles(address[0], format="json", changes=code.outputs[0].revisable, partition_by=columns)
        case "webhook":
            made[kind] = ToWebhook(address[0], timeout="1 minute", start="earliest")
    (bound,) = routes(code, made.values(), "test")
    return bound


def main(folder: str, version: str, *sink: str) -> None:
    """Deliver until caught up."""
    if number := os.environ.get(DIES_BEHIND):
        _die_behind(int(number))
    code = {**BY_VERSION, TOTALS.version: TOTALS}[version]
    deliver(route(code, *sink), Lake(folder), until_caught_up=True)


def _die_behind(number: int) -> None:
    """SIGKILL behind a statement of SQL; commits and rollbacks are counted too."""
    from sqlalchemy import Engine, event

    numbers = count(1)

    def passed(*_: object) -> None:
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("after_cursor_execute", "commit", "rollback"):
        event.listen(Engine, name, passed)


if __name__ == "__main__":
    main(*sys.argv[1:])
