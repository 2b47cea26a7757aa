"""Claims: what a delivery notes of the place it is about to fill, before it has delivered anything; and the refusal of a place that another lake has."""

from __future__ import annotations

from floodmark.core.errors import LifecycleError
from floodmark.core.host import is_here
from floodmark.lake.folder import locks
from floodmark.lake.folder.paths import Lake

HOST = "host"
"""Key of a claim: the host on which its delivery is at work, as ``core.host`` names it; not in claims of earlier releases."""


def is_left(lake: str, delivery: str, host: str) -> bool:
    """Whether a claim without a delivery behind it is nobody's any more, so that another delivery may have the place.

    It is left where its lake is gone from its host, or no process is at work on the delivery there. Another host cannot tell, and a lake in a bucket
    tells of no process: there a claim stays.

    Args:
        lake: root of the lake of the claim.
        delivery: name of the delivery.
        host: of the claim; empty where it is unknown.
    """
    claimed = Lake(lake)
    is_told = is_here(host) and claimed.is_local
    return is_told and (not claimed.there or locks.holder(claimed, "deliveries", delivery) is None)


def other_lake(delivery: str, lake: str, other: str, takeover: str) -> LifecycleError:
    """The refusal of a sink that another lake fills under the same name: each of them would go on where the other one is.

    Args:
        delivery: name of the delivery.
        lake: root of the lake that is refused.
        other: root of the other lake, and for people what more is known of it.
        takeover: for people: how this lake gets the sink.
    """
    fix = (
        "Only one lake may deliver to a sink under one name: give this delivery a name and a place of its own, deliver=[...(..., name=...)]. If this "
        f"lake is the other one, moved, or the other one is gone: {takeover}"
    )
    where, expected = f"delivery '{delivery}'", f"a sink that lake {lake} delivers to"
    return LifecycleError(where, expected, f"lake {other}", fix, code="LIFECYCLE-241")
