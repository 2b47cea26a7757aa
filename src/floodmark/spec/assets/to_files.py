"""Files: settings of a delivery into a folder. Frozen, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.assets.delivery import Delivery, Guarantee
from floodmark.spec.graph.operator import Output
from floodmark.spec.rows.connector import located

_NAMING = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
"""Types whose values name a folder, and are read back from its name."""


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
        partition_by: column, or columns, whose values divide the files among folders, as Hive, Spark, Arrow and DuckDB read them:
            ``country=NL/0000000007-42.parquet``. A null is ``__HIVE_DEFAULT_PARTITION__``. The columns are texts, whole numbers, booleans or dates, and are in the
            names of the folders alone; a text is not empty. With ``changes`` they are of the result's key. A folder is divided as it was at first. A commit of very many rows has further files, ``0000000007-42.1.parquet``; one without rows has none.

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
    partition_by: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the settings."""
        columns = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        object.__setattr__(self, "partition_by", columns)
        wrong = {
            "folder": (isinstance(self.folder, str) and bool(self.folder), "the path of a folder"),
            "format": (self.format in {"parquet", "csv", "json"}, '"parquet", "csv" or "json"'),
            "partition_by": (
                all(isinstance(name, str) and name for name in columns) and len({*columns}) == len(columns),
                "names of columns, each once",
            ),
        }
        for name, (fits, expected) in wrong.items():
            if not fits:
                got = f"{name}={getattr(self, name)!r}"
                raise DefinitionError("ToFiles", expected, got, f"Correct {name}.", code="DEFINITION-336")

    def located(self, folder: Path) -> Self:
        """With an absolute path."""
        return replace(self, folder=located(self.folder, folder))

    def check(self, output: Output, where: str) -> None:
        """As ``Delivery``, and refuse columns that cannot divide the files.

        Raises:
            DefinitionError: DEFINITION-331; DEFINITION-473, a column of ``partition_by``.
        """
        Delivery.check(self, output, where)
        keys = () if output.current is None else output.keys
        for name in self.partition_by:
            expected, got = "", f"no column '{name}'"
            if name not in output.schema:
                expected = "columns of the output"
            elif (kind := output.schema[name].type) not in _NAMING:
                expected, got = "texts, whole numbers, booleans or dates", f"'{name}' of type {kind}"
            elif self.changes and name not in keys:
                expected = "with changes=True columns of the key, as a result that is taken back has no others"
                got = f"'{name}'" if keys else f"'{name}' of results that are final and have no key"
            if expected:
                hint = "" if name in output.schema else closest(name, output.schema.names)
                columns = f"{hint}Columns: {output.schema.describe()}."
                fix = "Leave changes=True out, or this column. " if self.changes and not output.revisable else ""
                fix += f'Leave it out, or add a column that fits: with_columns(day="CAST(at AS DATE)"). {columns}'
                raise DefinitionError(f"{where}, partition_by", expected, got, fix, code="DEFINITION-473")
        if len(self.partition_by) == len(output.schema.names):
            got, fix = "all columns", "Leave one out: files have the other columns."
            raise DefinitionError(f"{where}, partition_by", "some of the columns", got, fix, code="DEFINITION-474")

    @property
    def retracts(self) -> bool:
        """Only as changes."""
        return self.changes

    @property
    def revocable(self) -> bool:
        """All results are written anew, and earlier files removed; changes stay."""
        return not self.changes
