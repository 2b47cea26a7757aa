"""What a Spark checkpoint says: committed batches, their watermarks, and whose it is."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileType

from floodmark.connectors.storage import file_system
from floodmark.core.errors import StateError
from floodmark.core.time import NEVER
from floodmark.engines.spark.host import progress_of
from floodmark.lifecycle.plan import Deployed
from floodmark.spec.operator import Operator

_IDENTITY = "floodmark.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one unbounded run.

    Args:
        path: folder or URI.
    """

    path: str

    def batches(self, log: str) -> list[int]:
        """Numbers in ``offsets`` or ``commits``, ascending. Spark keeps about a hundred."""
        files, base = file_system(f"{self.path}/{log}")
        found = files.get_file_info(FileSelector(base, allow_not_found=True))
        return sorted(int(f.base_name) for f in found if f.type == FileType.File and f.base_name.isdigit())

    def last_committed(self) -> int:
        """The last batch that is done; -1 for none."""
        return max(self.batches("commits"), default=-1)

    def progress_before(self, batch: int) -> int:
        """Progress in force in a batch: that of all batches before it. NEVER where it is not kept."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["batchWatermarkMs"]))

    def progress_after(self, batch: int) -> int:
        """Progress once a committed batch is taken into account."""
        lines = self._lines("commits", batch)
        return NEVER if lines is None else progress_of(int(json.loads(lines[1])["nextBatchWatermarkMs"]))

    def clock(self, batch: int) -> int:
        """Processing time of a batch, ms; Spark notes it before the batch begins, so a repeated one has the same."""
        lines = self._lines("offsets", batch)
        return NEVER if lines is None else int(json.loads(lines[1])["batchTimestampMs"])

    def positions(self, batch: int) -> list[int]:
        """Per source of the query, in order, the last table version that is read completely at the end of a batch."""
        lines = self._lines("offsets", batch)
        found = []
        for line in (lines or [])[2:]:
            offset = json.loads(line)
            found.append(
                int(offset["reservoirVersion"]) - 1
            )  # index -1 or a file within that version: it is not complete
        return found

    def deployed(self) -> Deployed | None:
        """The definition the stream was started with; None where there is no stream."""
        files, path = file_system(f"{self.path}/{_IDENTITY}")
        if files.get_file_info(path).type == FileType.NotFound:
            return None
        with files.open_input_stream(path) as stream:
            found = json.loads(stream.read())
        tables = {name: tuple((column, kind) for column, kind in columns) for name, columns in found["tables"].items()}
        return Deployed(version=found["version"], graph=found["graph"], tables=tables)

    def claim(self, operator: Operator) -> bool:
        """Make sure the checkpoint is this operator's; False when it is new.

        Raises:
            StateError: STATE-002 of another operator, STATE-003 of another version of this one.
        """
        files, path = file_system(f"{self.path}/{_IDENTITY}")
        mine = {
            "operator": operator.name,
            "version": operator.version,
            "fingerprint": operator.fingerprint,
            "graph": operator.canonical(),
            "tables": {output.table: list(output.schema.types.items()) for output in operator.outputs},
        }
        if files.get_file_info(path).type == FileType.NotFound:
            if self.batches("offsets"):
                fix = "Move the folder away; a new checkpoint is made at the next start."
                raise StateError(
                    f"checkpoint {self.path}", "one that floodmark made", "another one", fix, code="STATE-002"
                )
            files.create_dir(path.rsplit("/", 1)[0])
            with files.open_output_stream(path) as stream:
                stream.write(json.dumps(mine).encode())
            return False
        with files.open_input_stream(path) as stream:
            found = json.loads(stream.read())
        if found["operator"] != operator.name:
            fix = f"Run {found['operator']}, or move the folder away to begin anew."
            got = f"that of '{found['operator']}'"
            raise StateError(
                f"checkpoint {self.path}", f"that of operator '{operator.name}'", got, fix, code="STATE-002"
            )
        if found["fingerprint"] != operator.fingerprint:
            fix = (
                f"See what has changed and what it means: floodmark plan {operator.name}. Restore the code of {found['version']}, or begin "
                f"anew with the new code: floodmark run {operator.name} --unbounded --from-scratch"
            )
            raise StateError(f"checkpoint {self.path}", operator.version, found["version"], fix, code="STATE-003")
        return True

    def _lines(self, log: str, batch: int) -> list[str] | None:
        files, path = file_system(f"{self.path}/{log}/{batch}")
        if batch < 0 or files.get_file_info(path).type == FileType.NotFound:
            return None
        with files.open_input_stream(path) as stream:
            return [str(line) for line in stream.read().decode().splitlines()]
