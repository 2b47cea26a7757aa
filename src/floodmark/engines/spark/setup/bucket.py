"""Refusal of lakes in buckets: commits of Spark's are no conditional puts, so beside another writer, or a second driver, they are lost there."""

from __future__ import annotations

from floodmark.core.errors import CapabilityError
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake


def refuse_bucket(lake: Lake, what: str, command: str) -> None:
    """Refuse to write a lake in a bucket.

    Args:
        lake: to be written.
        what: that would write, for the error.
        command: that does it on the embedded engine, without the engine.

    Raises:
        CapabilityError: CAPABILITY-045.
    """
    if is_bucket(lake.root):
        fix = f"Use the embedded engine, which commits there: {command} --engine embedded. Or keep the lake on a file system that all workers see."
        raise CapabilityError(
            f"{what} in {lake.root}", "a lake on a file system", "one in a bucket", fix, code="CAPABILITY-045"
        )
