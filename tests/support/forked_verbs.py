"""``floodmark`` as a program for a shell, forked."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import forked

PROGRAM = Path(sys.executable).parent / "floodmark"
"""The one that is installed."""


@cache
def folder() -> str:
    """The folder of the program, for the front of a ``PATH``; that of the one that is installed where a library does not take a fork."""
    return str((forked.program("floodmark", str(PROGRAM)) if forked.FORKS else PROGRAM).parent)
