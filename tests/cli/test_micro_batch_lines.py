"""What the command line says of each micro-batch."""

from __future__ import annotations

import pytest

from floodmark.cli.verbs.run import _batch
from floodmark.spec.values.run import BatchInfo


@pytest.mark.feature("R4")
def test_what_failed_beside_a_micro_batch_is_said_below_it() -> None:
    batch = BatchInfo(
        batch_id=99,
        rows_in=1000,
        rows={"sums": 100},
        late=0,
        dropped=0,
        retractions=0,
        progress=1_577_836_800_000,
        seconds=0.5,
        warnings=("no checkpoint was written",),
    )
    assert _batch(batch).splitlines() == [
        "  micro-batch 99: 1,000 rows in (2,000 rows/s), out: sums 100; up to 2020-01-01T00:00:00Z; 0.5 s",
        "  warning: no checkpoint was written",
    ]
