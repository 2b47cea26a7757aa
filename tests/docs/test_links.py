"""Links of the pages lead to files and headings that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import links


@pytest.mark.parametrize("page", links.pages(), ids=lambda page: page.relative_to(links.ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert not links.broken(page)


def test_a_link_to_no_file_or_no_heading_is_seen_and_code_is_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    text = "# A [title](page.md), with `code`\n\n[a](no.md) [b](#a-title-with-code) [c](page.md#no)\n```python\nx[y](z)\n```\n"
    page.write_text(text)
    assert links.broken(page) == ["page.md: no.md", "page.md: page.md#no"]
