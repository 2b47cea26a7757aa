"""The pages about streams in a real Chromium: no script, nothing from elsewhere, nothing wider than the window, pictures with their texts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import chromium
from events import Event

import floodmark as fm
from floodmark.compiler.program import program
from floodmark.control.serving.server import serving
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.observe.measure import Measure
from floodmark.spec.values.run import CheckpointInfo

if TYPE_CHECKING:
    from playwright.sync_api import Page


@fm.operator
def tallied(events: fm.Stream[Event]) -> fm.Outputs:
    recent = events.filter("value > 0", on_error="quarantine").key_by("key")
    windowed = recent.window(fm.Tumbling("10 minutes"), late="side_output").aggregate(n=fm.count())
    return fm.Outputs(main=windowed, many=windowed.filter("n > 3"))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a server that knows a stream of a hundred micro-batches, whose driver has crashed."""
    store, now = Store(f"sqlite:///{tmp_path}/control.db"), time.time()
    about: dict[str, Any] = {"root": "/", "environment": "dev", "package": "p", "desired": "running"}
    store.deploy(Deployment(operator="tallied", lake=str(tmp_path / "lake"), version=tallied.version, **about))
    (deployment,) = store.deployments()
    driver = store.begin(deployment, str(tmp_path))
    store.end(driver.id, "crashed", "EXECUTION-004 something is missing")
    measures.describe(store, deployment.stream, program(tallied))
    for number in range(100):
        made = CheckpointInfo(batch=number, seconds=0.01 * (number % 7), written=1000, held=5000 + 100 * number)
        phases = {"read": 0.1, "compute": 0.2, "write": 0.1}
        measure = Measure(
            history="t",
            number=number,
            at=now - 100 + number,
            seconds=0.4,
            phases=phases,
            rows_in=50,
            rows={"tallied": 5},
            checkpoint=made,
        )
        measures.record(store, deployment.stream, measure)
    with serving(store, "127.0.0.1", None, lambda _: None) as address:
        yield address


@pytest.mark.browser
@pytest.mark.feature("N3", "N6")
def test_the_page_of_a_stream_as_a_person_sees_it(url: str) -> None:
    with chromium() as page:
        told: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        _fits(page)
        page.get_by_role("link", name="tallied").click()
        page.get_by_role("heading", name="Checkpoints").wait_for()
        _fits(page)
        assert page.get_by_text("EXECUTION-004 something is missing").first.is_visible()
        nodes = page.locator("svg g").filter(has=page.locator("rect"))
        labels = page.evaluate("[...document.querySelectorAll('svg g > title')].map(one => one.textContent)")
        assert {"events", "tallied__main", "tallied__many", "tallied__late", "tallied__quarantine"} <= set(labels)
        for node in nodes.all():
            box = node.locator("rect").bounding_box()
            assert box is not None
            for text in node.locator("text").all():
                inner = text.bounding_box()
                assert inner is None or not inner["width"] or inner["x"] + inner["width"] <= box["x"] + box["width"]
        assert page.locator("polyline").count() == 3 + 1 + 2, "phases; durations and sizes of checkpoints"
        assert page.locator("script").count() == 0
        assert told == []
        assert all(one.startswith(url) for one in asked)


def _fits(page: Page) -> None:
    """Nothing is wider than the window."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, page.url
