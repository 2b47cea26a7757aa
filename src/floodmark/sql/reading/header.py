"""The header of a file of SQL: comment lines before the statement, ``-- lateness: 2 hours``, and others that describe the operator."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.errors import DefinitionError

SETTINGS = ("name", "lateness", "late", "on_error", "within", "ttl", "key_groups", "revision")
"""Settings of a header, as of ``sql_operator``; and ``input``, which names a table for the statement."""
_NUMBERS = frozenset({"key_groups", "revision"})
_LINE = re.compile(r"^\s*--\s?(.*)$")
_SETTING = re.compile(r"^\s*([A-Za-z_]+)(?:\s+(\w+))?\s*:\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the head of a file says.

    Args:
        settings: by name.
        inputs: name in the statement -> table.
        description: the other lines.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    description: str = ""


def header_of(text: str, where: str) -> Header:
    """(text of a file) -> its header.

    Raises:
        DefinitionError: DEFINITION-396, a setting that is not known, twice there, or no number where one is needed.
    """
    settings: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    words: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        comment = _LINE.match(line)
        if comment is None:
            if line.strip():
                break
            continue
        setting = _SETTING.match(comment[1])
        key = setting[1].lower() if setting else ""
        if setting is not None and key == "input" and setting[2]:
            inputs[setting[2]] = setting[3]
        elif setting is not None and not setting[2] and key in SETTINGS:
            settings[key] = _value(key, setting[3], settings, f"{where}, line {number}")
        elif (
            setting is not None
            and not setting[2]
            and (near := difflib.get_close_matches(key, SETTINGS, n=1, cutoff=0.75))
        ):
            fix = f"Did you mean '{near[0]}'? Settings: {', '.join(SETTINGS)}, input."
            raise DefinitionError(
                f"{where}, line {number}", "a setting of an operator", f"'{key}'", fix, code="DEFINITION-396"
            )
        else:
            words.append(comment[1].rstrip())
    return Header(settings=settings, inputs=inputs, description="\n".join(words).strip())


def _value(key: str, text: str, settings: Mapping[str, Any], where: str) -> Any:
    if key in settings or not text or (key in _NUMBERS and not text.isdecimal()):
        expected = "a whole number" if key in _NUMBERS else "one value"
        got = f"'{key}' twice" if key in settings else repr(text)
        fix = f"Write -- {key}: {'16' if key in _NUMBERS else '2 hours' if key in {'lateness', 'within'} else '...'}"
        raise DefinitionError(where, expected, got, fix, code="DEFINITION-396")
    return int(text) if key in _NUMBERS else text
