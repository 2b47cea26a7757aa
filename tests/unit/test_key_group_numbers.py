"""The number of key groups that an operator declares."""

from __future__ import annotations

import re
from typing import Any

import pytest
from events import Event

from floodmark import Stream, Tumbling, count, operator
from floodmark.core.errors import DefinitionError


def hourly(events: Stream[Event]) -> Stream:
    """Rows of each hour."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


def passed(events: Stream[Event]) -> Stream:
    """Rows as they are."""
    return events.filter("value > 0")


@pytest.mark.parametrize("groups", [1, 64, 128, 1 << 15])
def test_no_number_makes_another_version(groups: int) -> None:
    declared, plain = operator(key_groups=groups)(hourly), operator(hourly)
    assert declared.version == plain.version
    assert declared == plain
    assert declared.stateful is not None
    assert (declared.stateful.groups, declared.key_groups) == (groups, groups)
    assert plain.stateful is not None
    assert (plain.stateful.groups, plain.key_groups) == (128, None)
    assert dict(plain.canonical()["outputs"])[""]["groups"] == 64, "as every release has written it"


@pytest.mark.parametrize("groups", [0, -1, 32_769, True, "64", 2.0])
def test_numbers_that_no_operator_has(groups: Any) -> None:
    text = f"DEFINITION-310 operator 'hourly': expected 1 to 32,768 key groups, got {groups!r}."
    with pytest.raises(DefinitionError, match=re.escape(text)):
        operator(key_groups=groups)(hourly)


def test_an_operator_without_state_has_no_key_groups() -> None:
    text = "DEFINITION-311 operator 'passed': expected a stateful step, got none, and key_groups=7."
    with pytest.raises(DefinitionError, match=re.escape(text)):
        operator(key_groups=7)(passed)
