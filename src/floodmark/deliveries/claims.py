"""Claims: what a delivery notes of the place it is about to fill, before it has delivered anything."""

from __future__ import annotations

from floodmark.lake.folder import locks
from floodmark.lake.folder.paths import Lake


def is_left(lake: str, delivery: str) -> bool:
    """Whether a claim without a delivery behind it is nobody's any more, so that another delivery may have the place.

    It is left where its lake is gone from this machine, or no process is at work on the delivery there. A lake in a bucket tells of no process.

    Args:
        lake: root of the lake of the claim.
        delivery: name of the delivery.
    """
    claimed = Lake(lake)
    return claimed.is_local and (not claimed.there or locks.holder(claimed, "deliveries", delivery) is None)
