"""Supersteps of an iteration in a lake: a Delta table each, done once a small file names it, so that a killed run resumes behind the last one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.fingerprint import digest
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system, files, folders, read, remove, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RUN = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superstep:
    """A superstep that is done.

    Args:
        number: from 0, the initial state.
        table: name of the folder of its state.
        rows: of the state.
        change: sum of ``_change``.
    """

    number: int
    table: str
    rows: int
    change: float


@dataclass(frozen=True, slots=True)
class Supersteps:
    """The supersteps of one iteration.

    Args:
        lake: that holds them.
        name: of the iteration.
    """

    lake: Lake
    name: str

    @property
    def folder(self) -> str:
        """Where they are."""
        return f"{self.lake.root}/graphs/{self.name}"

    @property
    def result(self) -> str:
        """Path of the result's Delta table."""
        return f"{self.folder}/result"

    def begin(self, definition: Mapping[str, Any], *, anew: bool) -> bool:
        """Begin an iteration, or resume the one that has not ended.

        Args:
            definition: what its results depend on, as JSON values.
            anew: remove supersteps of another definition.

        Returns:
            True if supersteps of the same definition are there.

        Raises:
            LifecycleError: LIFECYCLE-250, an iteration of another definition has not ended.
        """
        now = digest(definition)
        content = read(f"{self.folder}/{_RUN}")
        before = None if content is None else json.loads(content)
        if before == now and not anew:
            return True
        if before is not None and not anew:
            fix = "Run that one to its end; or remove its supersteps by anew=True; or give this one another name."
            got = "supersteps of another one, which has not ended"
            raise LifecycleError(
                f"iteration '{self.name}' in {self.lake.root}", "its own supersteps", got, fix, code="LIFECYCLE-250"
            )
        self.clear()
        write(f"{self.folder}/{_RUN}", json.dumps(now).encode())
        return False

    def pinned(self, name: str, value: Callable[[], Any]) -> Any:
        """A value that stays as it was when it was first asked for, until the iteration ends: the version of an input."""
        path = f"{self.folder}/{name}.json"
        content = read(path)
        if content is None:
            content = json.dumps(value()).encode()
            write(path, content)
        return json.loads(content)

    def last(self) -> Superstep | None:
        """The last superstep that is done; None before the first."""
        done = [name for name in files(self.folder) if name.startswith("superstep-")]
        content = read(f"{self.folder}/{max(done)}") if done else None
        return None if content is None else Superstep(**json.loads(content))

    def write(self, number: int, frame: DataFrame, measured: Callable[[DataFrame], tuple[int, float]]) -> Superstep:
        """Compute a superstep and write its state.

        Args:
            number: of the superstep.
            frame: its state.
            measured: (state as written) -> rows, sum of changes.
        """
        table = f"state-{number:06d}-{uuid.uuid4().hex[:8]}"
        path = f"{self.folder}/{table}"
        frame.write.format("delta").save(path)
        crash.point("superstep.before_done")
        rows, change = measured(frame.sparkSession.read.format("delta").load(path))
        done = Superstep(number=number, table=table, rows=rows, change=change)
        write(f"{self.folder}/superstep-{number:06d}.json", json.dumps(asdict(done)).encode())
        crash.point("superstep.after_done")
        self._tidy(done)
        return done

    def read(self, session: SparkSession, superstep: Superstep) -> DataFrame:
        """The state of a superstep."""
        return session.read.format("delta").load(f"{self.folder}/{superstep.table}")

    def once(self, session: SparkSession, name: str, frame: Callable[[], DataFrame]) -> DataFrame:
        """A table that is computed once for all supersteps."""
        table = self.pinned(f"table-{name}", lambda: self._written(name, frame()))
        return session.read.format("delta").load(f"{self.folder}/{table}")

    def _written(self, name: str, frame: DataFrame) -> str:
        table = f"{name}-{uuid.uuid4().hex[:8]}"
        frame.write.format("delta").save(f"{self.folder}/{table}")
        return table

    def finish(self, session: SparkSession, superstep: Superstep, columns: list[str]) -> None:
        """Write the result in place of an earlier one, in one commit, and remove the supersteps."""
        state = self.read(session, superstep).selectExpr(*(f"`{column}`" for column in columns))
        state.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.result)
        crash.point("superstep.after_result")
        self.clear()

    def _tidy(self, done: Superstep) -> None:
        """Remove states before the last one, and those of killed attempts."""
        for name in folders(self.folder):
            if name.startswith("state-") and name != done.table:
                _remove_folder(f"{self.folder}/{name}")
        for name in files(self.folder):
            if name.startswith("superstep-") and name != f"superstep-{done.number:06d}.json":
                remove(f"{self.folder}/{name}")

    def clear(self) -> None:
        """Remove all but the result; what says which run this is goes last."""
        for name in sorted(files(self.folder), key=lambda name: name == _RUN):
            if name != _RUN:
                remove(f"{self.folder}/{name}")
        for name in folders(self.folder):
            if name != "result":
                _remove_folder(f"{self.folder}/{name}")
        remove(f"{self.folder}/{_RUN}")


def _remove_folder(path: str) -> None:
    system, folder = file_system(path)
    with suppress(FileNotFoundError):
        system.delete_dir(folder)
