"""The home of a table: the one lake that may commit to it. A replica in another lake holds the same commits, and a file that names its home.

A table keeps its id wherever it is replicated, so that its id and the file tell a replica from another table of that name, and a table that comes back
to its home from one that is replicated for the first time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import storage
from floodmark.lake.table import entries

_FILE = "origin.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the commits of a table are made.

    Args:
        table: id of the table.
        home: root of the lake whose commits these are; empty if they are made here.
        term: how often another lake has become the home; the home with the greatest term is the home.
    """

    table: str
    home: str = ""
    term: int = 0

    @property
    def is_replica(self) -> bool:
        """Whether the commits are made in another lake."""
        return bool(self.home)


def read(path: str) -> Origin | None:
    """The origin of a table or of one that is being replicated; None for a table that was never replicated to this path, nor taken over here."""
    content = storage.read(file_of(path))
    return None if content is None else Origin(**json.loads(content))


def file_of(path: str) -> str:
    """Path of the file with the origin of a table."""
    return entries.beside(path, _FILE)


def is_replica(path: str) -> bool:
    """Whether the commits of a table are made in another lake."""
    known = read(path)
    return known is not None and known.is_replica


def write(path: str, origin: Origin) -> None:
    """Store the origin of a table beside its log."""
    storage.write(file_of(path), json.dumps(asdict(origin)).encode())


def check_home(path: str, what: str, adopt: str) -> None:
    """Check that commits to a table are made in this lake.

    Args:
        path: path of the table; need not exist.
        what: what wants to write, for the error.
        adopt: name by which the table is adopted, for the error.

    Raises:
        LifecycleError: LIFECYCLE-270, the table is a replica.
    """
    origin = read(path)
    if origin is not None and origin.is_replica:
        fix = (
            f"Its rows come from there by floodmark replicate, run there. If that lake is lost or stopped for good, make this one the home: "
            f"floodmark adopt {adopt}"
        )
        raise LifecycleError(
            what, f"a table that is written here, {path}", f"a replica of lake {origin.home}", fix, code="LIFECYCLE-270"
        )
