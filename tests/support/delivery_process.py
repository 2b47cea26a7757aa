"""A delivery in a process of its own, which a test may kill: delivery_process.py LAKE OPERATOR KIND ADDRESS [TOPIC]."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from small_lake import TOTALS
from streams import STREAMS

from floodmark import Delivery, Operator, ToFiles, ToKafka, ToSql, ToWebhook
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import Route, routes


def route(code: Operator, kind: str, *address: str) -> Route:
    """The delivery of an operator's first output."""
    made: dict[str, Delivery] = {}
    match kind:
        case "sql":
            made[kind] = ToSql(*address)
        case "kafka":
            made[kind] = ToKafka(address[1], address[0])
        case "messages":
            made[kind] = ToKafka(address[1], address[0], transactions=False)
        case "files":
            made[kind] = ToFiles(address[0], format="json", changes=code.outputs[0].revisable)
        case "webhook":
            made[kind] = ToWebhook(address[0], timeout="2 seconds", start="earliest")
    (bound,) = routes(code, made.values(), "test")
    return bound


def main(folder: str, name: str, *sink: str) -> None:
    """Deliver until caught up."""
    code = {**STREAMS, TOTALS.name: TOTALS}[name]
    deliver(route(code, *sink), Lake(folder), until_caught_up=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
