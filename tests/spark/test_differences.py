"""The example of differences prints what the page says, and its answers are those of the six orders."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from console_pages import blocks, ran
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "differences"


class Forked:
    """What runs the programs of the example."""

    @staticmethod
    def run(command: list[str], *, cwd: Path, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        return forked.run(command, cwd=cwd, env=env)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Its module, with its folder where Python looks for modules as long as the test runs; the verbs that it runs are forked."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import compare

        monkeypatch.setattr(compare, "subprocess", Forked)
        yield compare
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in ("arrivals", "compare", "raw_spark"):
            sys.modules.pop(name, None)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("R1", "R3")
def test_the_three_differences_are_those_that_the_page_shows(compare: Any, spark: SparkSession, tmp_path: Path) -> None:
    orders: dict[str, list[int]] = defaultdict(list)
    for file in sys.modules["arrivals"].ARRIVALS:
        for time, cents in file:
            orders[f"{time[:2]}:00"].append(cents)
    report = compare.main(tmp_path / "run", spark)
    ran("python compare.py", "python examples/differences/compare.py")
    (block,) = blocks(ROOT / "docs" / "why.md")
    assert f"$ python examples/differences/compare.py\n{report}" == block.body
    late = 50
    assert orders["08:00"].pop() == late
    answers = {
        line.split(":  ")[0].strip(): line.split(":  ")[1].strip() for line in report.splitlines() if ":  " in line
    }
    sums = ", ".join(f"{hour} {sum(values)}" for hour, values in sorted(orders.items()))
    largest = ", ".join(f"{hour} {max(values)}" for hour, values in sorted(orders.items()))
    assert answers["floodmark, unbounded"] == answers["floodmark, bounded"] == answers["Spark, stream"] == sums
    assert answers["floodmark, from its log"] == largest != answers["Spark, from the source"]
    assert answers["Spark, batch"] == f"08:00 {sum(orders['08:00']) + late}, 09:00 {sum(orders['09:00'])}"
