"""Freshness as Dagster's own policy. It is judged by the age of the newest materialization; the check `stream` judges the watermark itself."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.windowing.partitions import Daily

REPORTED_SECONDS = 300
"""Least time between two materializations that the sensor `streams` reports of an asset that is not divided."""
_LOOK_SECONDS = 60
"""Longest time until a sensor that is due has looked."""


def freshness_policy(asset: SourceAsset | OperatorAsset) -> dg.FreshnessPolicy | None:
    """Dagster's policy for the freshness of an asset; None without one.

    A materialization is reported for each completed partition, or of an asset that is not divided every five minutes: so much longer than the freshness is the
    window, so that the policy fails only where the check fails too.
    """
    if asset.freshness is None:
        return None
    pause = timedelta(seconds=REPORTED_SECONDS)
    if isinstance(asset, OperatorAsset) and asset.partitions is not None:
        pause = timedelta(hours=25 if isinstance(asset.partitions, Daily) else 1)
    window = timedelta(milliseconds=asset.freshness, seconds=_LOOK_SECONDS) + pause
    return dg.FreshnessPolicy.time_window(fail_window=window)
