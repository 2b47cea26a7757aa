"""Steps of verbs: each can be killed at, is a document, and says what it does."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from errno import ENOSPC
from typing import get_args

import pytest

from floodmark.core import crash
from floodmark.lifecycle import steps
from floodmark.lifecycle.steps import Fence, Save, Step, documents, kind, recorded, take

ABOUT = {
    "operators": ("a", "b"),
    "tables": ("t", "u"),
    "readers": ("v", "w"),
    "timeline": 3,
    "partitions": 4,
    "patience": 5.0,
    "soak": 6.0,
    "again": True,
}


@pytest.mark.parametrize("made", get_args(Step))
def test_each_step_says_all_that_it_is_about(made: type[Step]) -> None:
    about = {one.name: ABOUT.get(one.name, f"the {one.name}") for one in fields(made)}
    step = made(**about)
    (found,) = json.loads(json.dumps(documents([step])))
    assert found.pop("step") == kind(step)
    told = found.pop("told")
    assert found == json.loads(json.dumps(about))
    hidden = {"desired", "operator"} if {"table", "tables", "version"} & about.keys() else set()
    for name, value in about.items():
        if isinstance(value, bool):
            assert str(replace(step, **{name: not value})) != told, (name, told)
            continue
        for part in value if isinstance(value, tuple) else [value]:
            assert name in hidden or (f"{part:g}" if isinstance(part, float) else str(part)) in told, (name, told)


def test_there_is_a_crash_point_before_each_step_and_behind_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [f"step.{steps._kind(made)}" for made in get_args(Step)]
    assert {*kinds, "step.done"} == set(crash.POINTS["step"])
    seen = list[str]()
    monkeypatch.setattr(crash, "point", seen.append)
    todo = [Save(operator="a", why="so"), Fence(operator="a", timeline=1)]
    with recorded() as taken:
        take(todo, lambda step: seen.append(str(step)))
    assert taken == todo
    assert seen == ["step.save", str(todo[0]), "step.fence", str(todo[1]), "step.done"]


def test_a_step_that_fails_was_not_taken() -> None:
    def each(step: Step) -> None:
        if isinstance(step, Fence):
            raise OSError(ENOSPC, "No space left on device")

    with recorded() as taken, pytest.raises(OSError, match="No space left"):
        take([Save(operator="a", why="so"), Fence(operator="a", timeline=1)], each)
    assert [kind(step) for step in taken] == ["save"]
