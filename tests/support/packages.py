"""Packages of a user's, written to disk and imported anew."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_numbers = itertools.count()


@contextlib.contextmanager
def imported(files: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Within, the modules of some files can be imported; afterwards they are as if they had never been.

    Args:
        files: path -> text.
        folder: in which a folder of their own is made.
    """
    root = folder / f"root{next(_numbers)}"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    tops = {path.split("/")[0].removesuffix(".py") for path in files}
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.split(".")[0] in tops]:
            del sys.modules[name]


def named(name: str) -> object:
    """``shop.kinds.RULE.fits``: an attribute of the longest module that there is."""
    parts = name.split(".")
    found: object = importlib.import_module(parts[0])
    for count in range(1, len(parts)):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(".".join(parts[: count + 1]))
            continue
        found = getattr(found, parts[count])
    return found
