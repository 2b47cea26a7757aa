"""Programs and rows drawn at random, with odd values, in memory: micro-batches, one batch and the rules agree.

On Spark: ``tests/spark/test_odd_programs.py``. ``FLOODMARK_SEEDS`` draws the programs of a run again.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from odd_programs import Program, differences, draw_program
from seeds import seed_of

from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.testing.runs import final


def run(program: Program, cuts: tuple[int, ...], restart: int) -> dict[str, list[dict[str, Any]]]:
    """Last values of every output, over micro-batches with a restart before one of them."""
    log, stream = program.log(), MemoryRun(program.operator())
    tables: dict[str, list[Any]] = {}
    for number, part in enumerate(itertools.pairwise([0, *cuts, len(log.entries)])):
        if number == restart:
            stream = MemoryRun(stream.operator, stream.savepoint())
        for name, table in stream.batch({"odd": log.table(*part)}).items():
            tables.setdefault(name, []).append(table)
    return {name: final(parts) for name, parts in tables.items()}


@pytest.mark.parametrize("schedule", [*range(12), *(pytest.param(n, marks=pytest.mark.soak) for n in range(12, 30))])
def test_a_random_program_of_odd_values_gives_the_oracles_rows_in_any_micro_batches(schedule: int) -> None:
    program = draw_program(seed_of(f"odd program {schedule}"), embedded=True)
    for cuts, restart in (((), 0), (program.cuts, program.restart)):
        if program.overflows:
            with pytest.raises(ExecutionError, match="EXECUTION-001"):
                run(program, cuts, restart)
            continue
        wrong = differences(program, run(program, cuts, restart))
        assert not wrong, f"{program}, in {len(cuts) + 1} micro-batches: " + "\n".join(wrong[:5])
