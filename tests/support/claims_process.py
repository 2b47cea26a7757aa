"""Deliveries that a test starts in several processes at the same time: each line of the input is one, and its outcome is a line of the output.

A line is JSON: ``{"lake", "name", "kind", "address", "target"}``; the target is a folder, a table, a prefix or an index. The outcome is ``taken``, or
the code of the error that has refused it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from small_lake import TOTALS

from floodmark import Delivery, ToFiles, ToRedis, ToSearch, ToSql
from floodmark.core.errors import FloodmarkError
from floodmark.deliveries.run import deliver
from floodmark.lake.folder.paths import Lake
from floodmark.spec.assets.delivery import routes


def settings(kind: str, address: str, target: str, name: str) -> Delivery:
    """The delivery of the totals."""
    match kind:
        case "redis":
            return ToRedis(address, prefix=target, name=name)
        case "search":
            return ToSearch(address, index=target, name=name)
        case "files":
            return ToFiles(f"{address}/{target}", format="json", changes=True, name=name)
        case _:
            return ToSql(address, table=target, name=name)


def outcome(lake: str, name: str, **about: Any) -> str:
    """What one delivery comes to."""
    (route,) = routes(TOTALS, [settings(name=name, **about)], "test")
    try:
        deliver(route, Lake(lake), until_caught_up=True)
    except FloodmarkError as error:
        return error.code
    return "taken"


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{outcome(**json.loads(line))}\n")
        sys.stdout.flush()
