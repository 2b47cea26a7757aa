"""Our progress as Spark's watermark on the carrier column, and back; needs no Spark, so that whoever reads a checkpoint needs none."""

from __future__ import annotations

from floodmark.core.time import NEVER

SHIFT = 1 - NEVER
"""Added to progress to make the carrier: rows at or below Spark's first watermark, 0, would vanish."""


def progress_of(spark_watermark: int) -> int:
    """Our progress from Spark's watermark on the carrier, which is one behind."""
    return spark_watermark + 1 - SHIFT


def watermark_of(progress: int) -> int:
    """Spark's watermark on the carrier at a progress of ours."""
    return progress + SHIFT - 1
