"""Conversion between floodmark's progress and Spark's watermark on the carrier column. Imports no Spark, so that reading a checkpoint needs none."""

from __future__ import annotations

from floodmark.core.time import NEVER

SHIFT = 1 - NEVER
"""Added to progress to make the carrier: rows at or below Spark's first watermark, 0, would vanish."""


def progress_of(spark_watermark: int) -> int:
    """Progress, ms, for a Spark watermark on the carrier, ms. Spark's watermark is 1 ms below the carrier of the progress."""
    return spark_watermark + 1 - SHIFT


def watermark_of(progress: int) -> int:
    """Spark's watermark on the carrier, ms, for a progress, ms."""
    return progress + SHIFT - 1
