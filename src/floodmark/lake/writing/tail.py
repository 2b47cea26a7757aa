"""The end of a table's log, tracked by its writer so that appends are committed without opening the table.

A commit is one file, which only one writer can create: on a disk the draft is synced, then hard-linked to the name of the next version; in a bucket it is
a conditional put, whose content has an id of its own, so that a lost answer is told from another writer's commit. Commits of other writers are read from
their entries. If an entry changes the table's columns or protocol, the table must be opened.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deltalake.transaction import AddAction

from floodmark.lake.folder.bucket import create, is_bucket
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.folder.storage import exists, sync
from floodmark.lake.table import entries

_PLAIN = (1, 2)
"""Highest (reader, writer) versions of Delta's protocol at which an append needs only add actions and a transaction."""
_SAFE = "/=._-~"
"""Characters that are not escaped in a path, besides letters and digits."""
_INTERVAL = "delta.checkpointInterval"
_FOLLOWED_SECONDS = 60
"""Time in a bucket after which commits of other writers are looked for before a commit. A commit onto a stale version fails in any case."""


@dataclass(slots=True)
class Tail:
    """The tracked end of one log.

    Args:
        path: path of the table.
        version: the newest version that was read or written.
        interval: commits between checkpoints.
        done: application id -> last transaction version it committed, None for none. Holds only applications that the writer uses.
    """

    path: str
    version: int
    interval: int
    done: dict[str, int | None] = field(default_factory=dict)
    links: bool = field(default=True, init=False)
    """True unless a commit found that the disk has no hard links."""
    _followed: float = field(default_factory=time.monotonic, init=False)
    """When ``version`` was known to be the newest one."""
    _met: bool = field(default=False, init=False)
    """True after a commit that another writer came before."""

    @staticmethod
    def of(path: str) -> Tail | None:
        """Read the end of a table's log; None if an append needs more than this module supports."""
        head = entries.head_of(path) if is_reached(path) else None
        if head is None or head.protocol > _PLAIN:
            return None
        interval = head.properties.get(_INTERVAL, "100")
        return Tail(path, head.version, int(interval)) if interval and interval.isdecimal() else None

    def follow(self) -> bool:
        """Read commits of other writers. Returns False if the table must be opened.

        In a bucket they are read when a commit meets another one, and after a pause: entries removed by upkeep are much older.
        """
        if is_bucket(self.path) and not self._met and time.monotonic() - self._followed < _FOLLOWED_SECONDS:
            return True
        if not exists(f"{self.path}/{entries.LOG}/{entries.entry_of(self.version)}"):
            return False
        while (entry := entries.entry(self.path, self.version + 1)) is not None:
            for action in entries.actions(entry):
                if "metaData" in action or "protocol" in action:
                    return False
                if (transaction := action.get("txn")) and transaction["appId"] in self.done:
                    self.done[transaction["appId"]] = int(transaction["version"])
            self.version += 1
        self._followed, self._met = time.monotonic(), False
        return True

    def can_append(self, files: Sequence[AddAction]) -> bool:
        """True if an append of these files can be committed here: hard links work, and no path needs escaping."""
        return self.links and all(file.path == quote(file.path, safe=_SAFE) for file in files)

    @property
    def due(self) -> bool:
        """True if Delta's checkpoint interval asks for a checkpoint of ``version``."""
        return (self.version + 1) % self.interval == 0

    def commit(self, files: Sequence[AddAction], metadata: str, divided: Sequence[str], once: tuple[str, int]) -> bool:
        """Commit files as the next version, durably. Returns False, without a commit, if another writer committed that version or links do not work.

        Args:
            files: files to add.
            metadata: ``userMetadata`` of the commit.
            divided: partition columns of the table.
            once: (application id, version) of the transaction.
        """
        info = {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(divided))},
            "engineInfo": "floodmark",
            "userMetadata": metadata,
        }
        transaction = {"appId": once[0], "version": once[1]}
        actions = [{"commitInfo": info}, *({"add": _plain(file)} for file in files), {"txn": transaction}]
        if is_bucket(self.path):
            return self._create(actions, once)
        log = Path(self.path, entries.LOG)
        draft = log / f"_commit_{uuid.uuid4()}.json.tmp"
        with draft.open("w", encoding="utf-8") as stream:
            stream.write("\n".join(json.dumps(action, separators=(",", ":")) for action in actions))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, log / entries.entry_of(self.version + 1))
        except FileExistsError:
            return False
        except OSError:  # a disk without hard links
            self.links = False
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync(log)
        self.version += 1
        self.done[once[0]] = once[1]
        return True

    def _create(self, actions: list[dict[str, Any]], once: tuple[str, int]) -> bool:
        """``commit`` in a bucket."""
        actions[0]["commitInfo"]["floodmark"] = uuid.uuid4().hex
        content = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
        if not create(f"{self.path}/{entries.LOG}/{entries.entry_of(self.version + 1)}", content):
            self._met = True
            return False
        self.version += 1
        self.done[once[0]], self._followed = once[1], time.monotonic()
        return True


def _plain(file: AddAction) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": file.data_change,
        "stats": file.stats,
    }
