"""Connectors and deliveries of installed packages, by their names."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from floodmark.core.errors import DefinitionError, SetupError, closest
from floodmark.spec.assets.delivery import Delivery
from floodmark.spec.rows.connector import Connector

GROUP = "floodmark.connectors"
"""The group of entry points under which packages declare connectors and deliveries."""


def connector(name: str) -> Callable[..., Any]:
    """The connector or the delivery that an installed package declares under a name, to be called with its settings: ``connector("queue")("orders")``.

    A package declares it as an entry point of the group ``floodmark.connectors``. The package is imported now, and where rows land or leave, so it is
    installed there, too.

    Args:
        name: of the entry point.

    Returns:
        Its class.

    Raises:
        SetupError: SETUP-151, no installed package declares the name; SETUP-152, several do; SETUP-153, the package cannot be imported.
        DefinitionError: DEFINITION-476, what the package declares is neither a connector nor a delivery.
    """
    where, declared = f"connector({name!r})", entry_points(group=GROUP)
    points = sorted(declared.select(name=name), key=_package)
    if not points:
        names = sorted(declared.names)
        fix = f"{closest(name, names)}Install the package that declares it, or correct the name. Installed: {', '.join(names) or 'none'}."
        raise SetupError(where, f"an installed package with this entry point of {GROUP}", "none", fix, code="SETUP-151")
    if len({point.value for point in points}) > 1:
        got = ", ".join(f"{_package(point)} ({point.value})" for point in points)
        fix = "Remove one of them, or import the class by its module."
        raise SetupError(where, "one package that declares it", got, fix, code="SETUP-152")
    made = _loaded(points[0], where)
    if not (isinstance(made, type) and issubclass(made, Connector | Delivery)):
        fix = f"Tell those who make {_package(points[0])}: a connector is a subclass of floodmark.Connector, a delivery one of floodmark.Delivery."
        raise DefinitionError(
            where, "a connector or a delivery", f"{points[0].value}: {made!r:.200}", fix, code="DEFINITION-476"
        )
    return made


def _loaded(point: EntryPoint, where: str) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever the package does as it is imported
        fix = f"Install what it needs, or another release of {_package(point)}."
        got = f"{type(error).__name__}: {error}"
        raise SetupError(where, f"{point.value} of {_package(point)}", got, fix, code="SETUP-153") from error


def _package(point: EntryPoint) -> str:
    name: str | None = None if point.dist is None else point.dist.name
    return name or "a package without metadata"
