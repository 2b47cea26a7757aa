"""docs/errors.md names every error of the code, and no other."""

from __future__ import annotations

import re

from .errors_page import ROOT, codes


def test_every_code_has_its_place_on_the_page_and_no_other() -> None:
    anchors = re.findall(r"^### ([A-Z]+-\d+)$", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert len(anchors) == len(set(anchors))
    missing, gone = sorted(codes() - set(anchors)), sorted(set(anchors) - codes())
    assert not missing, "run: python tests/docs/errors_page.py > docs/errors.md"
    assert not gone, "run: python tests/docs/errors_page.py > docs/errors.md"


def test_a_number_that_a_message_shows_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert "taken over 15 s later" in page
    assert "<LEASE SECONDS>" not in page
