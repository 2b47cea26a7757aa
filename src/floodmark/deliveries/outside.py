"""What has left for good: deliveries whose sinks keep what they were given, whatever becomes of the output."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.delivered import delivered
from floodmark.spec.assets.delivery import Route


def outside(routes: Iterable[Route], lake: Lake, operators: Collection[str]) -> list[str]:
    """For people: what was delivered of the results of some operators and stays where it is, if they are rolled back or rebuilt.

    Args:
        routes: all deliveries of the workspace.
        lake: of the outputs.
        operators: names.
    """
    left = []
    for route in routes:
        position = delivered(lake, route.name)
        if route.operator.name in operators and not route.delivery.revocable and position is not None:
            left.append(
                f"{route.name} has delivered {route.output.table} up to version {position.version}: what has left is not taken back, and what changes "
                "is delivered behind it"
            )
    return left
