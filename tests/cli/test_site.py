"""The site of ``make docs``: built without a network, with all pages and a reference, readable without a network, searchable."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from inspect import isclass, isfunction
from pathlib import Path

import pytest

import floodmark

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"


class Loaded(HTMLParser):
    """What a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"script", "img", "iframe"} and values.get("src"):
            self.addresses.append(str(values["src"]))
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload"}:
            self.addresses.append(str(values["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": NOWHERE, "https_proxy": NOWHERE}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_each_page_is_in_the_site_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).is_file()} == set()
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert "```" not in page.read_text("utf-8"), f"a block of {page} is no block"
        elsewhere = [one for one in loaded.addresses if re.match(r"(\w+:)?//", one)]
        assert not elsewhere, (page, elsewhere)


def test_the_first_page_is_the_readme_and_the_reference_has_the_docstrings(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    assert "images/one_definition.svg" in first
    assert 'href="why.html"' in first
    reference = (site / "reference.html").read_text("utf-8")
    described = [
        value for value in map(floodmark.__dict__.get, floodmark.__all__) if isclass(value) or isfunction(value)
    ]
    assert len(described) > 80
    for value in described:
        assert f'id="{value.__module__}.{value.__qualname__}"' in reference
    words = " ".join(re.sub(r"<[^>]+>", "", unescape(reference)).split())
    assert " ".join(str(floodmark.Tumbling.__doc__).split(".")[0].split()) in words


def test_the_menu_leads_to_each_page(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    menu = first.split("md-nav--primary", 1)[1].split("md-sidebar--secondary", 1)[0]
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html", "index.html"}
    assert pages - set(re.findall(r'href="([^"#]+)"', menu)) == set()


def test_the_site_is_searchable(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {
        document["location"].split("#")[0] for document in index["docs"] if "savepoint" in document["text"].lower()
    }
    assert {"savepoints.html", "cookbook.html", "why.html"} <= found
