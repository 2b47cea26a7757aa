"""Shipping: contract classes travel to the workers by value, because a worker cannot import a workspace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from floodmark.spec.contract import Contract


def by_value(contract: type[Contract]) -> None:
    """Make Spark pickle everything by value that lives in the folder a contract was imported from.

    Installed packages and floodmark itself stay references: the workers have them.
    """
    for base in contract.__mro__:
        if base.__dict__.get("__pydantic_parent_namespace__") is not None and contract.__pydantic_complete__:
            # the variables of the function the class was defined in, such as the session: only unfinished classes need them
            base.__pydantic_parent_namespace__ = None  # type: ignore[attr-defined]  # it was found there
    root = _root(sys.modules.get(contract.__module__))
    if root is None:
        return
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in {"__main__", "floodmark"} and _root(module) == root:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # pyspark's own copy has no types


def _root(module: ModuleType | None) -> Path | None:
    """The folder on ``sys.path`` a module came from; None for installed ones and those without a file."""
    if module is None:
        return None
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    places = [getattr(top, "__file__", None), *getattr(top, "__path__", ())]
    place = next((place for place in places if place), None)
    if place is None or "site-packages" in place or "dist-packages" in place or place.startswith(sys.base_prefix):
        return None
    path = Path(place)
    return path.parent.parent if path.name == "__init__.py" or path.is_dir() else path.parent
