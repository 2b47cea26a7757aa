"""Each example has a picture, drawn from its definitions, on its page and in what ``floodmark init --example`` copies."""

from __future__ import annotations

import re

import pytest

from floodmark import Workspace

from . import example_pictures as pictures


@pytest.mark.parametrize("name", pictures.names())
def test_the_picture_of_an_example_is_that_of_its_definitions(name: str) -> None:
    folder = pictures.EXAMPLES / name
    assert (folder / "picture.svg").read_text("utf-8") == pictures.drawn(name), (
        "run: python tests/docs/example_pictures.py"
    )
    assert "](picture.svg)" in (folder / "README.md").read_text("utf-8")


def test_a_picture_has_each_source_operator_and_delivery_and_a_lane_to_each_reader() -> None:
    nodes = [
        pictures.Node(name="orders", kind="log", about="An order & its price."),
        pictures.Node(name="sums", kind="operator", about="Sums.", reads=("orders",)),
        pictures.Node(name="both", kind="operator", about="", reads=("orders", "sums")),
    ]
    drawn = pictures.picture(nodes)
    assert re.findall(r'class="name"[^>]*>([^<]+)', drawn) == ["orders", "sums", "both"]
    assert "An order &amp; its price." in drawn
    assert drawn.count("l5 4l-5 4") == 3, "an arrow for each that is read"
    assert "prefers-color-scheme: dark" in drawn
    assert pictures.nodes(Workspace()) == []
