"""The experiments of a lake: their records, and where their arms' lakes and comparisons lie."""

from __future__ import annotations

from floodmark.core.errors import LifecycleError, closest
from floodmark.lake import readers
from floodmark.lake.copies import remove
from floodmark.lake.paths import Lake
from floodmark.lake.storage import folders, read, write
from floodmark.lifecycle.experiment import Experiment

_FOLDER = "experiments"
_RECORD = "experiment.json"


def root_of(lake: Lake, name: str, arm: str) -> str:
    """The lake of an arm."""
    return lake.internal(_FOLDER, name, "arms", arm)


def comparison_of(lake: Lake, name: str, arm: str, table: str) -> str:
    """The folder of what was found of an output of an arm beside that of the first one."""
    return lake.internal(_FOLDER, name, "compared", arm, table)


def keep(lake: Lake, experiment: Experiment) -> Experiment:
    """Write a record down; the record."""
    write(lake.internal(_FOLDER, experiment.name, _RECORD), experiment.as_json().encode())
    return experiment


def known(lake: Lake) -> list[Experiment]:
    """Every experiment of a lake, the oldest first."""
    records = [read(lake.internal(_FOLDER, name, _RECORD)) for name in folders(lake.internal(_FOLDER))]
    return sorted((Experiment.parse(one) for one in records if one is not None), key=lambda one: one.began_at)


def find(lake: Lake, name: str) -> Experiment:
    """One experiment.

    Raises:
        LifecycleError: LIFECYCLE-090, there is none of that name.
    """
    text = read(lake.internal(_FOLDER, name, _RECORD))
    if text is None:
        names = [one.name for one in known(lake)]
        fix = f"{closest(name, names)}See those there are: floodmark experiment list"
        raise LifecycleError(f"experiment '{name}'", f"one of lake {lake.root}", "none", fix, code="LIFECYCLE-090")
    return Experiment.parse(text)


def forget(lake: Lake, experiment: Experiment) -> None:
    """Remove all of an experiment; its arms are stopped. Done again after a crash it goes on: the record goes last."""
    for arm in experiment.arms:
        readers.forget(lake, arm.root)
    remove(lake.internal(_FOLDER, experiment.name, "arms"))
    remove(lake.internal(_FOLDER, experiment.name, "compared"))
    remove(lake.internal(_FOLDER, experiment.name))
