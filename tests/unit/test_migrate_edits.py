"""Edits of the functions that bring kept values to a new version, and whether the version of an operator sees them.

Apart from the table of ``test_version_edits.py``, which runs on bare Pythons: a state needs floodmark's dependencies.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from packages import imported, named

from floodmark import Operator
from floodmark.lifecycle.plan import Deployed, Plan, plan

READINGS = '''
"""Readings."""
from events import Event
from floodmark import Contract, ProcessFunction, Stream, ValueState, operator

OFFSET = 32


def fahrenheit(celsius):
    return shifted(celsius * 9 / 5)


def shifted(value):
    return value + OFFSET


def kelvin(value):
    return value + 273.15


class Warmth(Contract):
    """What comes out."""

    warmth: float


class Last(ProcessFunction):
    """The last reading."""

    value = ValueState(float, version=2, migrate=fahrenheit)

    def on_element(self, row, context):
        """Keep it."""
        self.value.update(float(row["value"]))
        yield {"warmth": 1.0}


@operator
def last(events: Stream[Event]) -> Stream:
    """The last reading of each key."""
    return events.key_by("key").process(Last(), schema=Warmth)
'''

EDITS = [  # what is edited, before, after, expected verdict of a plan
    ("body", "celsius * 9 / 5", "celsius * 9 / 4", "compatible state"),
    ("helper", "return value + OFFSET", "return value - OFFSET", "compatible state"),
    ("constant of a helper", "OFFSET = 32", "OFFSET = 33", "compatible state"),
    ("another function", "migrate=fahrenheit", "migrate=kelvin", "compatible state"),
    ("lambda that does otherwise", "migrate=fahrenheit", "migrate=lambda celsius: celsius", "compatible state"),
    ("one version more", "version=2, migrate=fahrenheit", "version=3, migrate={2: fahrenheit, 3: kelvin}", "compatible state"),
    ("no function, and no version", "version=2, migrate=fahrenheit", "version=1", "rebuild"),
    ("a mapping that says the same", "migrate=fahrenheit", "migrate={2: fahrenheit}", "no-op"),
    ("comment", "OFFSET = 32", "OFFSET = 32  # degrees", "no-op"),
    ("docstring", "def fahrenheit(celsius):\n", 'def fahrenheit(celsius):\n    """In degrees."""\n', "no-op"),
    ("function of nobody", "273.15", "273.16", "no-op"),
]  # fmt: skip


def changes(folder: Path, before: str, after: str) -> tuple[Plan, bool]:
    """What a plan says of an edit, and whether the operator has another version."""
    assert before in READINGS
    deployed = None
    for text in (READINGS, READINGS.replace(before, after)):
        with imported({"shop/__init__.py": "", "shop/readings.py": text}, folder):
            code = named("shop.readings.last")
            assert isinstance(code, Operator)
            if deployed is None:
                tables = {output.table: tuple(output.schema.types.items()) for output in code.outputs}
                deployed = Deployed(
                    version=code.version, fingerprint=code.fingerprint, graph=code.canonical(), tables=tables
                )
            else:
                found = plan(deployed, code), code.version != deployed.version
    return found


@pytest.mark.parametrize(("what", "before", "after", "expected"), EDITS, ids=[edit[0] for edit in EDITS])
def test_an_edit_of_a_migrate_function_is_seen_where_it_may_change_a_value(tmp_path, what, before, after, expected):
    planned, another = changes(tmp_path, before, after)
    assert planned.verdict == expected, asdict(planned)
    assert another == (expected != "no-op")
