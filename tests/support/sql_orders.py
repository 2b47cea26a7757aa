"""A source that is a table of a database, and the process that is killed while it lands: url, lake."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from floodmark import Ascending, Contract, EventTime, Source, SqlTable
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake


class Order(Contract):
    """A row of the table."""

    at: EventTime
    id: int
    cents: int


def source(url: str, contract: type[Contract] = Order, **settings: Any) -> Source:
    """A source of the table ``orders``, with tiny units and no lag."""
    named = {"name": "orders", "increasing": "id", "lag": "0 seconds", "rows_per_unit": 7, **settings}
    return Source(
        "orders",
        contract=contract,
        connector=SqlTable(url=url, **named),
        watermark=Ascending(),
        files_per_commit=3,
        max_quarantine_share=1,
    )


def land(orders: Source, lake: Path, **how: Any) -> LandingResult:
    """Land a source that has no predicate."""
    return embedded.land(no_sail, orders, Lake(str(lake)), **how)


def no_sail() -> Any:
    """Fail: no predicate is to be computed."""
    raise AssertionError("Sail was asked for")


def landed(lake: Path) -> list[dict[str, Any]]:
    """The rows of the log in order, without markers."""
    table = DeltaTable(Lake(str(lake)).log("orders")).to_pyarrow_table().to_pylist()
    return sorted((row for row in table if row["_kind"] == 0), key=lambda row: row["_sequence"])


if __name__ == "__main__":
    url, lake = sys.argv[1:]
    land(source(url), Path(lake))
