"""What a stream's run comes to: the sums of its micro-batches, in a space that does not grow with them."""

from __future__ import annotations

import pickle

from floodmark.engines.outcome import Tally
from floodmark.spec.values.run import BatchInfo
from operators.flights import daily_carriers


def info(number: int) -> BatchInfo:
    rows = {daily_carriers.outputs[0].table: number} if number % 2 else {}
    return BatchInfo(
        batch_id=number, rows_in=9, rows=rows, late=1, dropped=2, retractions=3, progress=number, seconds=0
    )


def test_a_result_has_the_sums_of_the_micro_batches() -> None:
    tally = Tally()
    for number in range(4):
        tally.add(info(number))
    result = tally.result(daily_carriers, watermark=7, seconds=0.5, warnings=["one of the engine's"])
    assert result.rows[daily_carriers.outputs[0].table] == 1 + 3
    assert set(result.rows) == {output.table for output in daily_carriers.outputs}
    assert (result.micro_batches, result.late, result.dropped, result.retractions) == (4, 4, 8, 12)
    assert result.watermark == 7
    assert result.warnings[-1] == "one of the engine's"


def test_a_tally_does_not_grow_with_the_micro_batches() -> None:
    tally = Tally()
    sizes = set()
    for number in range(1, 20_001):
        tally.add(info(1))
        if number % 5_000 == 0:
            sizes.add(len(pickle.dumps(tally)) // 16)
    assert len(sizes) == 1
