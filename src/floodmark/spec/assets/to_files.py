"""Files: settings of a delivery into a folder. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Delivery, Guarantee
from floodmark.spec.rows.connector import located


@dataclass(frozen=True, slots=True)
class ToFiles(Delivery):
    """A file per commit of an output, named by the delivery and the commit: ``0000000007-42.parquet``. A delivery that is repeated writes the same name again.

    The file ``_floodmark.json`` says which files count: those from number ``first`` to ``number``. When rows of the output are replaced, by a rollback
    or a bounded run, the next file has all rows, ``first`` is its number, and the earlier files are removed.

    Args:
        folder: where they go; relative to the workspace, or a URI of a bucket.
        format: ``"parquet"``, ``"csv"`` or ``"json"`` (an object per line).
        changes: each file has the changes of its commit, with a column ``_change``, ``upsert`` or ``delete``: for results that are revised. Files are then never
            removed, except when the output was made anew.

    Raises:
        DefinitionError: DEFINITION-336, a setting.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.files:FilesSink"
    kind: ClassVar[str] = "files"
    guarantee: ClassVar[Guarantee] = "key"

    folder: str
    _: KW_ONLY
    format: Literal["parquet", "csv", "json"] = "parquet"
    changes: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        wrong = {
            "folder": (isinstance(self.folder, str) and bool(self.folder), "the path of a folder"),
            "format": (self.format in {"parquet", "csv", "json"}, '"parquet", "csv" or "json"'),
        }
        for name, (fits, expected) in wrong.items():
            if not fits:
                got = f"{name}={getattr(self, name)!r}"
                raise DefinitionError("ToFiles", expected, got, f"Correct {name}.", code="DEFINITION-336")

    def located(self, folder: Path) -> Self:
        """With an absolute path."""
        return replace(self, folder=located(self.folder, folder))

    @property
    def retracts(self) -> bool:
        """Only as changes."""
        return self.changes

    @property
    def revocable(self) -> bool:
        """All results are written anew, and earlier files removed; changes stay."""
        return not self.changes
