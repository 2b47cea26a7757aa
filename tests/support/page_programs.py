"""Programs of a page as modules, as if a reader had saved them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

from console_pages import FENCE, ran

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def module_of(file: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the code to the file and import it; the module is known by the file's name until the test ends."""
    file.write_text(code)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    ran(code)
    return module


def pieces(page: Path, kind: str = "python") -> list[str]:
    """The blocks of a page in one language that are written to no file, in order."""
    found = FENCE.finditer(page.read_text("utf-8"))
    return [block["body"] for block in found if block["kind"] == kind and not block["argument"]]
