"""Tables of the package that are asked of Spark, by function: a line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any


def write_table(file: Path, answers: Mapping[str, Any], function: Callable[[str], str], names: Collection[str]) -> None:
    """Write what was asked of all functions, or of some with the others as they are.

    Args:
        file: of the package.
        answers: entry -> what Spark does.
        function: an entry -> the name of its function.
        names: of the functions that were asked; all if empty.
    """
    if names:
        before = json.loads(file.read_text("utf-8"))
        answers = {entry: kept for entry, kept in before.items() if function(entry) not in names} | dict(answers)
    lines = ",\n".join(f" {json.dumps(entry)}: {json.dumps(kept)}" for entry, kept in sorted(answers.items()))
    file.write_text(f"{{\n{lines}\n}}\n", "utf-8")
