"""docs/guarantees.md says what connectors and sinks declare, and names tests that there are."""

from __future__ import annotations

import inspect
import re

import pytest

import floodmark
from floodmark import Connector, Delivery

from .features_page import ROOT
from .guarantees_page import DELIVERIES, SOURCES, page


@pytest.mark.feature("Z33")
def test_the_page_is_current() -> None:
    found = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    assert found == page(), "run: PYTHONPATH=tests/support python tests/docs/guarantees_page.py > docs/guarantees.md"


def test_the_page_has_every_source_and_every_delivery() -> None:
    public = [getattr(floodmark, name) for name in floodmark.__all__]
    classes = [kind for kind in public if inspect.isclass(kind)]
    assert {kind for kind in classes if issubclass(kind, Connector) and kind is not Connector} == set(SOURCES)
    delivering = {kind for kind in classes if issubclass(kind, Delivery) and kind is not Delivery}
    assert delivering == {type(delivery) for _, delivery, _, _ in DELIVERIES}
    assert all("unit" in vars(kind) and "order" in vars(kind) for kind in SOURCES)


def test_the_tests_that_the_page_names_are_there() -> None:
    for test in [*SOURCES.values(), *(test for *_, test in DELIVERIES)]:
        file, _, name = test.partition("::")
        assert not name or re.search(rf"^def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), test
