"""Plans of micro-batches in a bucket: what each reads, put once by one process under the condition that there is no such object.

Spark notes a plan by a rename, which on a disk refuses a second one and in a bucket is a copy: of two drivers of one stream both could compute a
micro-batch, each of other rows. So the plan that counts is the one put here, before anything of the micro-batch is written: another driver ends, and a
start gives Spark the plans that count.
"""

from __future__ import annotations

import json
import uuid

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import bucket, checksums, storage

PLANS = "plans"
"""Name of their folder in a checkpoint."""
_RETAINED = 100
"""Plans that are retained: Spark retains as many of its own."""


def agree(checkpoint: str, number: int) -> None:
    """Make Spark's plan of a micro-batch the one that counts, or find that it is. Nothing on a disk, where Spark's own counts.

    Args:
        checkpoint: folder of the checkpoint.
        number: of the micro-batch.

    Raises:
        LifecycleError: LIFECYCLE-220, another process of this stream has planned the micro-batch otherwise.
    """
    if not bucket.is_bucket(checkpoint):
        return
    offsets = _of_spark(checkpoint, number)
    if bucket.create(_path(checkpoint, number), _content(offsets)) or offsets == plan_of(checkpoint, number):
        return
    fix = "Keep one process per stream. This one has committed nothing of the micro-batch and can go: floodmark status shows the stream."
    got = f"another process, which has planned micro-batch {number} otherwise"
    raise LifecycleError(f"checkpoint {checkpoint}", "one process that runs the stream", got, fix, code="LIFECYCLE-220")


def plan_of(checkpoint: str, number: int) -> str | None:
    """The plan of a micro-batch that counts, as Spark writes it; None if there is none, as on a disk."""
    content = storage.read(_path(checkpoint, number)) if bucket.is_bucket(checkpoint) else None
    return None if content is None else str(json.loads(content)["offsets"])


def change(checkpoint: str, number: int, offsets: str) -> None:
    """Change Spark's plan of a micro-batch, and the one that counts if there is one. No query may run on the checkpoint."""
    if plan_of(checkpoint, number) is not None:
        storage.write(_path(checkpoint, number), _content(offsets))
    checksums.write(_offsets(checkpoint, number), offsets.encode())


def resume(checkpoint: str) -> None:
    """Give Spark the newest plans that count, in whose place another driver may have put its own, and remove old ones. No query may run."""
    if not bucket.is_bucket(checkpoint):
        return
    numbers = sorted(int(name) for name in storage.files(f"{checkpoint}/{PLANS}") if name.isdecimal())
    while numbers and storage.exists(_path(checkpoint, numbers[-1] + 1)):  # a listing may be behind
        numbers.append(numbers[-1] + 1)
    for number in numbers[-2:]:
        offsets = plan_of(checkpoint, number)
        if offsets is not None and offsets != _of_spark(checkpoint, number):
            storage.write(_offsets(checkpoint, number), offsets.encode())
    bucket.remove(_path(checkpoint, number) for number in numbers[:-_RETAINED])


def _content(offsets: str) -> bytes:
    return json.dumps({"put": uuid.uuid4().hex, "offsets": offsets}).encode()


def _of_spark(checkpoint: str, number: int) -> str:
    return (storage.read(_offsets(checkpoint, number)) or b"").decode()


def _path(checkpoint: str, number: int) -> str:
    return f"{checkpoint}/{PLANS}/{number}"


def _offsets(checkpoint: str, number: int) -> str:
    return f"{checkpoint}/offsets/{number}"
