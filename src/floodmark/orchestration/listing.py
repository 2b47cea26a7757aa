"""Savepoints in Dagster: the list of them, from which a job takes one, and the materializations that report them.

The list is what can be seen of a lake: whoever updates it, and however often, it comes to the savepoints that are there. What was reported is
written down apart from it, and only the sensor reports: its daemon writes the events, then the names of what is reported, then the cursor, and
may be killed behind each of them. The next look goes by the names and by the events that are newer than the cursor, so each is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.time import describe, iso
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint

SAVEPOINTS = dg.DynamicPartitionsDefinition(name="floodmark_savepoints")
"""The savepoints of a lake, as partitions to select from a list."""
REPORTED = dg.DynamicPartitionsDefinition(name="floodmark_reported_savepoints")
"""Ids of the savepoints that were reported and are not reported as deleted; no job has these partitions."""
KEY = dg.AssetKey("savepoints")
"""The asset that reports savepoints."""
_FEW = 300
"""Most listed savepoints that are listed anew so that a new one stands first."""
_PAGE = 500
"""Events that are read at once."""
_NOTE = 80
"""Most characters of a note in the list of savepoints."""
_MADE, _DELETED = "savepoint", "deleted"
"""Metadata of an event: the id of the savepoint that it reports, and the ids of those that it reports as deleted."""


def update_list(instance: dg.DagsterInstance, lake: Lake, there: set[str]) -> None:
    """Bring the list of savepoints to what the lake has: new ones first, as Dagster shows partitions in the order in which they were added.

    A list of more than ``_FEW`` savepoints only grows at its end. Savepoints that cannot be read are not listed.

    Args:
        instance: where the list is.
        lake: of the savepoints.
        there: names of its savepoints.
    """
    name = str(SAVEPOINTS.name)
    keys = {id_of(key): key for key in instance.get_dynamic_partitions(name)}
    stay = [key for made, key in keys.items() if made in there]
    added = [key_of(savepoint) for savepoint in reversed(_readable(lake, there - keys.keys()))]
    removed = [key for made, key in keys.items() if made not in there]
    if added and len(stay) <= _FEW:
        removed, added = [*removed, *stay], [*added, *stay]
    for key in removed:  # a sensor's requests may not delete and add one key
        instance.delete_dynamic_partition(name, key)
    if added:
        instance.add_dynamic_partitions(name, added)


def reports(
    instance: dg.DagsterInstance, lake: Lake, there: set[str], known: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """(materializations of savepoints that are new, and of the deletion of others; requests that write down what is reported then).

    Args:
        instance: where events and names are.
        lake: of the savepoints.
        there: names of its savepoints.
        known: what the cursor has: ``after``, the newest event that the names are known to include. Is updated.
    """
    name = str(REPORTED.name)
    names = set(instance.get_dynamic_partitions(name))
    if there == names:
        return [], []
    reported = set(names)
    newer = dg.AssetRecordsFilter(asset_key=KEY, after_storage_id=known.get("after"))
    for storage_id, event in materializations(instance, newer, ascending=True):
        known["after"], about = storage_id, event.metadata
        reported |= {str(about[_MADE].value)} if _MADE in about else set()
        reported -= set(str(about[_DELETED].value).split(", ")) if _DELETED in about else set()
    new, gone = _readable(lake, there - reported), sorted(reported - there)
    events = [_materialized(savepoint) for savepoint in new]
    if gone:
        left = len(there & reported) + len(new)
        events.append(
            dg.AssetMaterialization(asset_key=KEY, metadata={_DELETED: ", ".join(gone), "savepoints left": left})
        )
    after = (reported - set(gone)) | {savepoint.manifest.id for savepoint in new}
    requests = list[Any]()
    if after - names:
        requests.append(REPORTED.build_add_request(sorted(after - names)))
    if names - after:
        requests.append(REPORTED.build_delete_request(sorted(names - after)))
    return events, requests


def materializations(
    instance: dg.DagsterInstance, wanted: dg.AssetRecordsFilter, *, most: int | None = None, ascending: bool = False
) -> Iterator[tuple[int, dg.AssetMaterialization]]:
    """(storage id, event) of each materialization that a filter lets through; the newest first, unless they are ``ascending``.

    Args:
        instance: where they are.
        wanted: the filter.
        most: number of events that are read at most, fewer than a page has; None: all.
        ascending: whether the oldest comes first.
    """
    cursor, left = None, True
    while left:
        page = instance.fetch_materializations(wanted, limit=most or _PAGE, cursor=cursor, ascending=ascending)
        cursor, left = page.cursor, page.has_more and most is None
        for record in page.records:
            if record.asset_materialization is not None:
                yield record.storage_id, record.asset_materialization


def id_of(key: str) -> str:
    """The id of the savepoint of a partition."""
    return key.split(" ", 1)[0]


def key_of(savepoint: Savepoint) -> str:
    """The partition of a savepoint: its id, in which the time is, and then, to tell savepoints apart in a list, its version and its note."""
    manifest = savepoint.manifest
    note = " ".join(re.sub(r"[^\w :@/+-]+", " ", manifest.why).split())[:_NOTE]
    version = manifest.version.rsplit("@", 1)[-1]
    return f"{manifest.id} version {version}{f' - {note}' if note else ''}"


def _readable(lake: Lake, names: Iterable[str]) -> Sequence[Savepoint]:
    """The savepoints of these names that can be read, in the order in which they were made."""
    made: list[Savepoint] = []
    for name in names:
        with suppress(StateError, LifecycleError):  # damaged, or partly deleted: cannot be selected
            made.append(savepoints.find(lake, name))
    return sorted(made, key=savepoints.order)


def _materialized(savepoint: Savepoint) -> dg.AssetMaterialization:
    manifest = savepoint.manifest
    about: dict[str, Any] = {
        _MADE: manifest.id,
        "operator": manifest.operator,
        "version": manifest.version,
        "made": iso(manifest.at),
        "up to": describe(manifest.watermark),
        "micro-batch": manifest.batch,
        "bytes": manifest.size,
        "note": manifest.why,
        "path": dg.MetadataValue.path(savepoint.path),
    }
    return dg.AssetMaterialization(asset_key=KEY, metadata=about)
