"""Another lake: settings of a delivery that replicates a log or the outputs of an operator. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Guarantee, Mirror
from floodmark.spec.rows.connector import located


@dataclass(frozen=True, slots=True)
class ToLake(Mirror):
    """A replica in another lake: the commits of a source's log, or of all outputs of an operator, as they are (docs/replication.md).

    Args:
        lake: folder or URI of the other lake; a folder is relative to the workspace.
        rename: of a source: name of its log in the other lake; by default that of the source.

    Raises:
        DefinitionError: DEFINITION-341, a setting.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.lake:LakeSink"
    kind: ClassVar[str] = "lake"
    guarantee: ClassVar[Guarantee] = "transaction"
    takes_logs: ClassVar[bool] = True

    lake: str
    _: KW_ONLY
    rename: str = ""

    def __post_init__(self) -> None:
        """Check the settings."""
        if not isinstance(self.lake, str) or not self.lake:
            fix = 'For example ToLake("s3://bucket/lake").'
            raise DefinitionError("ToLake", "the folder or URI of a lake", repr(self.lake), fix, code="DEFINITION-341")

    def located(self, folder: Path) -> Self:
        """With an absolute path."""
        return replace(self, lake=located(self.lake, folder))
