"""The example of a sales screen: each order is on the screen before the next one comes, also when one of two pipelines is killed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import forked
import pytest
from console_pages import ran
from page_programs import pieces

EXAMPLE = Path(__file__).parents[2] / "examples" / "screen"


@pytest.mark.feature("Y7", "Y12")
def test_each_order_is_on_the_screen_before_the_next_one_comes_though_a_pipeline_dies(tmp_path: Path) -> None:
    """How many seconds that takes is measured by the example itself, on a machine that is quiet."""
    folder = tmp_path / "screen"
    shutil.copytree(EXAMPLE, folder)
    (shown,) = pieces(EXAMPLE / "README.md", "bash")
    assert shown == "python measure.py --orders 100 --every 0.1\n"
    command = [sys.executable, "measure.py", "--orders", "8", "--every", "0", "--one-by-one"]
    done = forked.run(command, cwd=folder, env=os.environ | forked.starting_forks())
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "8 orders; the first pipeline was killed after 4" in done.stdout
    assert "sums on the screen are those of the orders: True" in done.stdout
    assert re.search(r"all within [\d.]+ s", done.stdout)
    ran(shown)
