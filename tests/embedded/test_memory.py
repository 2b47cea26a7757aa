"""More than the memory of the embedded engine: a run says what to do and has written nothing; with more memory it is exact."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from events import Event

from floodmark import Stream, Tumbling, count, operator, sum
from floodmark.core.errors import SetupError
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import Sail
from floodmark.lake.folder.paths import Lake
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import append

ROWS, KEYS = 150_000, 90_000


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """Sums of many keys."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count(), total=sum("value"))


def rows() -> pa.Table:
    """In order, a millisecond apart."""
    keys, places = np.random.default_rng(1).integers(0, KEYS, ROWS), np.arange(ROWS)
    schema = arrow_schema(per_hour.inputs[0].schema)
    columns = {
        "at": pa.array(places * 1000, pa.int64()).cast(schema.field("at").type),
        "key": pa.array([f"a key with a name of its own {key}" for key in keys]),
        "value": pa.array(places, pa.int64()),
    }
    stamps = {"_event_time": places, "_watermark": places - 1, "_progress": places - 1, "_sequence": places}
    stamps["_kind"] = np.full(ROWS, ROW, dtype=np.int32)
    return pa.table({**columns, **{name: pa.array(values) for name, values in stamps.items()}})


def test_a_group_by_that_does_not_fit_says_what_to_do_and_writes_nothing(lake: Lake) -> None:
    given = rows()
    append(lake.input(per_hour.inputs[0]), given)
    small, large = Sail(memory=3), Sail(memory=300)
    try:
        with pytest.raises(SetupError) as caught:
            run_bounded(small, per_hour, lake)
        assert caught.value.code == "SETUP-058"
        assert "pool_size: 3.0 MB" in caught.value.got
        assert "Settings(memory=MEGABYTES)" in caught.value.fix
        assert "--engine spark" in caught.value.fix
        assert "floodmark run per_hour" in caught.value.fix
        assert DeltaTable(lake.output("per_hour")).to_pyarrow_table().num_rows == 0
        run_bounded(large, per_hour, lake)
    finally:
        small.close()
        large.close()
    wanted = Counter[str]()
    for key, value in zip(given["key"].to_pylist(), given["value"].to_pylist(), strict=True):
        wanted[key] += value
    found = DeltaTable(lake.output("per_hour")).to_pyarrow_table()
    assert dict(zip(found["key"].to_pylist(), found["total"].to_pylist(), strict=True)) == wanted
    assert int(np.sum(found["n"].to_numpy())) == ROWS
