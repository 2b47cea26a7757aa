"""Upkeep of a workspace: tables, comparisons of experiments, and the control plane. The supervisor starts ``python -m floodmark.control.processes.upkeep``."""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from floodmark.control.processes.comparing import carry_on_all
from floodmark.control.processes.periodic import ACTION
from floodmark.control.processes.retention import tidy
from floodmark.control.state.store import CONTROL, Store
from floodmark.core import machine
from floodmark.core.errors import FloodmarkError
from floodmark.lake.folder.locks import data_files
from floodmark.lake.folder.paths import Lake
from floodmark.lake.maintenance.removal import Removed
from floodmark.lake.maintenance.retention import DAYS, merge_marks, retire, tidy_answers, tidy_fits
from floodmark.lake.maintenance.upkeep import HOURS, MaintenanceResult, maintain
from floodmark.spec.workspace import Settings

_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an upkeep, or of its dry run.

    Args:
        tables: result per table.
        removed: removed objects other than files of tables.
        stay: reasons why objects were not removed.
    """

    tables: tuple[MaintenanceResult, ...] = ()
    removed: tuple[Removed, ...] = ()
    stay: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields by name, and their sums."""
        return {
            "tables": [asdict(one) for one in self.tables],
            "removed": [asdict(one) for one in self.removed],
            "stay": list(self.stay),
        } | sums([self])


def sums(parts: Iterable[Done]) -> dict[str, int]:
    """Totals: ``merged``, files by which compaction shrank tables; ``files``, removed files; ``bytes``, their size."""
    tables, removed = list[MaintenanceResult](), list[Removed]()
    for part in parts:
        tables, removed = [*tables, *part.tables], [*removed, *part.removed]
    return {
        "merged": sum(max(0, one.before - one.after) for one in tables),
        "files": sum(one.removed + one.entries for one in tables) + sum(one.files for one in removed),
        "bytes": sum(one.size for one in tables) + sum(one.size for one in removed),
    }


def keep_up(
    lakes: Iterable[Lake],
    *,
    hours: int = HOURS,
    days: float = DAYS,
    dry_run: bool = False,
    store: Store | None = None,
    home: Path | None = None,
) -> Done:
    """Compact and clean the tables of lakes, and remove expired data. Streams and landings may be running.

    Args:
        lakes: the lakes to maintain.
        hours: hours for which replaced files of tables are retained.
        days: days for which packages, ended timelines, logs and records of the control store are retained.
        dry_run: only report what would be done.
        store: the control store; None for none.
        home: folder of packages and logs.

    Raises:
        LifecycleError: as ``maintain``. Work done before the error stays done.
    """
    tables, removed, stay = list[MaintenanceResult](), list[Removed](), list[str]()
    for lake in lakes:
        if not lake.there:
            stay.append(f"lake {lake.root}: nothing is there")
            continue
        tables += maintain(lake, hours=hours, dry_run=dry_run)
        with data_files(lake, "upkeep, rebuild, rollback or fork", _PATIENCE_SECONDS):
            gone, why = retire(lake, days=days, dry_run=dry_run)
            gone += merge_marks(lake, hours=hours, dry_run=dry_run)
            gone += tidy_answers(lake, dry_run=dry_run)
            gone += tidy_fits(lake, dry_run=dry_run)
        removed, stay = removed + gone, stay + why
    if store is not None and home is not None:
        gone, why = tidy(store, home, days=days, dry_run=dry_run)
        removed, stay = removed + gone, stay + why
    return Done(tables=tuple(tables), removed=tuple(removed), stay=tuple(stay))


def main(home: str, options: str) -> int:
    """Maintain the lakes of a store's streams, advance comparisons of experiments, and record the result in the journal. Returns the exit code.

    Args:
        home: folder of packages and logs.
        options: keyword arguments of ``keep_up``, as JSON.
    """
    os.nice(10)
    store, upkeep_options = Store(os.environ[CONTROL]), json.loads(options)
    who = f"{socket.gethostname()}, process {os.getpid()}"
    lakes = sorted({one.lake for one in store.deployments()})
    parts, errors = list[Done](), list[str]()
    for lake in lakes:
        try:
            parts.append(keep_up([Lake.of(Settings(lake=lake))], **upkeep_options))
            errors += carry_on_all(store, Path(home), Lake.of(Settings(lake=lake)))
        except Exception as error:  # noqa: BLE001 - a failure must not stop the upkeep of other lakes
            refusal = error if isinstance(error, FloodmarkError) else machine.refused(error, f"upkeep of lake {lake}")
            errors.append(str(refusal) if refusal else f"upkeep of lake {lake}: {type(error).__name__}: {error}")
            if refusal is None:
                traceback.print_exc()
    parts.append(keep_up([], **upkeep_options, store=store, home=Path(home)))
    note(store, who, lakes, parts, errors)
    return 1 if errors else 0


def note(store: Store, who: str, lakes: Sequence[str], parts: Sequence[Done], errors: Sequence[str] = ()) -> None:
    """Record the result of an upkeep in the journal."""
    stay = [why for part in parts for why in part.stay]
    store.note(who, ACTION, lakes=lakes, errors=errors, stay=stay, done=sums(parts))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
