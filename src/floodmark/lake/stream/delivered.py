"""How far a delivery has got in the log of an output, as the lake remembers it. Where a sink has transactions, the sink knows better."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from floodmark.core.time import NEVER
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders, read, write

_DELIVERIES = "deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A position in the log of an output.

    Args:
        table: id of the output's table; empty if the next delivery replaces all that was delivered.
        version: version of the table whose changes are delivered.
        number: of the last delivery; -1 before the first.
        progress: of the output at that version, ms.
        at: time of the version's commit, ms UTC; 0 before the first.
        name: name of the output's table.
        lake: root of the lake.
    """

    table: str = ""
    version: int = -1
    number: int = -1
    progress: int = NEVER
    at: int = 0
    name: str = ""
    lake: str = ""

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Delivered:
        """The inverse of ``to_json``."""
        value: Mapping[str, Any] = json.loads(text)
        return Delivered(**value)


def delivered(lake: Lake, delivery: str) -> Delivered | None:
    """How far a delivery had got when the lake was last told; None if it has delivered nothing."""
    return read_position(position_file(lake, delivery))


def position_file(lake: Lake, delivery: str) -> str:
    """Path of the file with the position of a delivery."""
    return _file(lake, delivery, "position")


def read_position(file: str) -> Delivered | None:
    """The position in a file; None if the delivery has delivered nothing."""
    content = read(file)
    return None if content is None else Delivered.from_json(content)


def note(lake: Lake, delivery: str, position: Delivered) -> None:
    """Tell the lake how far a delivery has got."""
    write(position_file(lake, delivery), position.to_json().encode())


def planned(lake: Lake, delivery: str) -> Delivered | None:
    """The position behind the delivery that was begun last, for sinks without transactions; None for none."""
    content = read(_file(lake, delivery, "plan"))
    return None if content is None else Delivered.from_json(content)


def plan(lake: Lake, delivery: str, position: Delivered) -> None:
    """Record the position behind a delivery that begins, so that one that is repeated has the same changes."""
    write(_file(lake, delivery, "plan"), position.to_json().encode())


def all_delivered(lake: Lake) -> Iterator[Delivered]:
    """The positions of all deliveries of a lake."""
    for name in folders(lake.internal(_DELIVERIES)):
        position = delivered(lake, name)
        if position is not None:
            yield position


def _file(lake: Lake, delivery: str, name: str) -> str:
    return lake.internal(_DELIVERIES, delivery, f"{name}.json")
