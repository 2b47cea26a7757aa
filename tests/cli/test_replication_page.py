"""The page about replication: whoever pastes its commands sees what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from console_pages import Reader, blocks, check, ran

PAGE = Path(__file__).parents[2] / "docs" / "replication.md"


@pytest.mark.feature("R8", "D7")
def test_each_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Three sites with state of their own share a stream; a log that comes back to its home brings nothing; a stream goes on elsewhere."""
    reader = Reader(
        tmp_path, {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    )
    for block in blocks(PAGE):
        check(reader.do(block), block)
    declared = re.findall(r"^```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    text = "".join(declared) + "print(shown.deliveries[0].name, summed.deliveries[0].name)"
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    ran(*declared)
    assert done.stdout == "berlin_shown_to_lake berlin_hourly_to_lake\n"
