"""References to packages of a workspace, from streams and unfinished actions of every control store and from savepoints of every lake.

Several control stores, one per environment, share one folder of packages, and a lake may lie anywhere. So each store records beside the packages which
packages it references, and every lake in which it has ever run a stream.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock

from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.restore import savepoints

_FOLDER = "stores"


@dataclass(frozen=True, slots=True)
class References:
    """The references of one control store.

    Args:
        store: URL of the store, without a password.
        packages: packages of its streams and of unfinished actions.
        lakes: lakes in which the store runs, or has run, a stream.
    """

    store: str
    packages: frozenset[str] = frozenset()
    lakes: frozenset[str] = frozenset()


def record(home: Path, store: Store) -> None:
    """Record the current references of a store. Lakes recorded earlier are retained."""
    file = home / _FOLDER / f"{hashlib.sha256(store.url.encode()).hexdigest()[:16]}.json"
    deployments, actions = store.deployments(), store.open_actions()
    packages = {one.package for one in deployments}
    packages |= {old[key] for one in actions for old in one.old.values() for key in ("package", "next") if key in old}
    lakes = {one.lake for one in deployments}
    shown = sa.make_url(store.url).render_as_string(hide_password=True)
    if not file.exists() and not lakes:
        return
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{_FOLDER}.lock"):
        was = _read(file) if file.exists() else References(shown)
        now = References(shown, frozenset(packages), was.lakes | lakes)
        if now != was:
            _write(file, now)


def forget(home: Path, store: Store, lake: str) -> bool:
    """Remove the references to a deleted lake, and its deployments from a store. Returns True if any store referenced the lake."""
    for deployment in store.deployments():
        if deployment.stream.lake == lake:
            store.withdraw(deployment.stream)
    files = _files(home)
    with FileLock(home / f"{_FOLDER}.lock"):
        knowing = [(file, was) for file in files if lake in (was := _read(file)).lakes]
        for file, was in knowing:
            _write(file, References(was.store, was.packages, was.lakes - {lake}))
    return bool(knowing)


def named(home: Path) -> set[str]:
    """Names of all referenced packages.

    Raises:
        LifecycleError: LIFECYCLE-061 a lake or the record of a store cannot be read, LIFECYCLE-060 a savepoint cannot be read. The references are
            unknown then.
    """
    packages, lakes = set[str](), set[str]()
    for file in _files(home):
        references = _read(file)
        packages |= references.packages
        lakes |= references.lakes
    for root in sorted(lakes):
        packages |= set(_of_savepoints(root))
    return packages


def _of_savepoints(root: str) -> Iterable[str]:
    try:
        why = "" if Lake(root).there else "none there"
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        fix = (
            "No package was removed. Put the lake back, or make it reachable; if it is gone for good: "
            f"floodmark maintain --forget {root}"
        )
        expected = "a lake whose savepoints say which packages they need"
        raise LifecycleError(f"lake {root}", expected, why, fix, code="LIFECYCLE-061")
    codes = (one.manifest.code for one in savepoints.all_readable(Lake(root)))
    return [str(code["package"]) for code in codes if "package" in code]


def _files(home: Path) -> list[Path]:
    return sorted((home / _FOLDER).glob("*.json"))


def _read(file: Path) -> References:
    try:
        value = json.loads(file.read_bytes())
        return References(str(value["store"]), frozenset(value["packages"]), frozenset(value["lakes"]))
    except (ValueError, KeyError, TypeError) as error:
        fix = f"No package was removed. Remove the file: rm '{file}'. The next floodmark status with each control store writes its own anew."
        expected = "the packages and lakes of a control store, as JSON"
        raise LifecycleError(f"file {file}", expected, f"something else: {error}", fix, code="LIFECYCLE-061") from error


def _write(file: Path, value: References) -> None:
    content = {"store": value.store, "packages": sorted(value.packages), "lakes": sorted(value.lakes)}
    write(str(file), json.dumps(content, indent=1).encode())
