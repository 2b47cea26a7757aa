"""Temporary folders go with their process, and those of killed ones when the next one starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.core.scratch import Scratch

HOLDER = """
import sys
from pathlib import Path
from floodmark.core.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "spilled").write_text("rows")
print(scratch.path, flush=True)
input()
scratch.remove()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_what_a_process_spilled_is_removed_when_it_is_gone(tmp_path: Path, killed: bool) -> None:
    mine, pipe = Scratch(tmp_path), subprocess.PIPE
    other = tmp_path / "floodmark-somebody"
    other.mkdir()
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        theirs = Path(holder.stdout.readline().strip())
        Scratch(tmp_path).remove()
        assert (theirs / "spilled").exists(), "it lives"
        if killed:
            holder.kill()
        else:
            holder.communicate("\n")
    assert theirs.exists() == killed
    Scratch(tmp_path).remove()
    assert sorted(tmp_path.iterdir()) == [mine.path, mine.path.with_name(f"{mine.path.name}.lock"), other]
