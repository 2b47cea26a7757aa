"""The stream of a small lake, as far as a control store knows it: nobody runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from events import Event
from small_lake import TOTALS

from floodmark import Ascending, Files, Settings, Source, Workspace
from floodmark.control.streams.fleet import Fleet


def fleet_of(folder: Path, **settings: Any) -> Fleet:
    """Of a lake in a folder, with a control store beside it."""
    source = Source("events", contract=Event, connector=Files("inbox"), watermark=Ascending())
    where = Settings(lake=str(folder / "lake"), control=f"sqlite:///{folder}/control.db", **settings)
    workspace = Workspace(sources=[source], operators=[TOTALS], settings=where)
    return Fleet(workspace=workspace, root=folder, say=lambda _: None)
