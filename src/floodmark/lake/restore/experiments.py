"""The experiments of a lake: their records, and the folders of their arms' lakes and comparisons."""

from __future__ import annotations

import time
from collections.abc import Iterable

from floodmark.core.errors import LifecycleError, closest
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders, read, write
from floodmark.lake.restore import readers
from floodmark.lifecycle.experiment import Experiment

_FOLDER = "experiments"
_RECORD = "experiment.json"


def root_of(lake: Lake, name: str, arm: str) -> str:
    """Root of the lake of an experiment's arm."""
    return lake.internal(_FOLDER, name, "arms", arm)


def comparison_of(lake: Lake, name: str, arm: str, table: str) -> str:
    """Folder of the comparison of an arm's output with that of the first arm."""
    return lake.internal(_FOLDER, name, "compared", arm, table)


def keep(lake: Lake, experiment: Experiment) -> Experiment:
    """Store the record of an experiment. Returns the record."""
    write(lake.internal(_FOLDER, experiment.name, _RECORD), experiment.as_json().encode())
    return experiment


def known(lake: Lake) -> list[Experiment]:
    """All experiments of a lake, oldest first."""
    records = [read(lake.internal(_FOLDER, name, _RECORD)) for name in folders(lake.internal(_FOLDER))]
    return sorted((Experiment.parse(one) for one in records if one is not None), key=lambda one: one.began_at)


def next_start(known: Iterable[Experiment]) -> int:
    """Start time of an experiment that begins now, ms UTC: later than that of each known one, whatever the clock says."""
    return max([time.time_ns() // 1_000_000, *(one.began_at + 1 for one in known)])


def operators(lake: Lake) -> frozenset[str]:
    """Names of the operators that have an experiment."""
    return frozenset(one.operator for one in known(lake))


def find(lake: Lake, name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        LifecycleError: LIFECYCLE-090, there is no experiment of that name.
    """
    text = read(lake.internal(_FOLDER, name, _RECORD))
    if text is None:
        names = [one.name for one in known(lake)]
        fix = f"{closest(name, names)}See those there are: floodmark experiment list"
        raise LifecycleError(f"experiment '{name}'", f"one of lake {lake.root}", "none", fix, code="LIFECYCLE-090")
    return Experiment.parse(text)


def forget(lake: Lake, experiment: Experiment) -> None:
    """Delete the lakes, comparisons and record of an experiment whose arms are stopped. Removes the record last, so a crashed call can be repeated."""
    for arm in experiment.arms:
        readers.forget(lake, arm.root)
    remove(lake.internal(_FOLDER, experiment.name, "arms"))
    remove(lake.internal(_FOLDER, experiment.name, "compared"))
    remove(lake.internal(_FOLDER, experiment.name))
