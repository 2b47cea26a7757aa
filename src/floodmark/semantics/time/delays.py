"""Delays: histograms of how far rows are behind, with fixed buckets, so that histograms add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

Milliseconds = npt.NDArray[np.int64]

_PER_OCTAVE = 16
"""Buckets between a power of two and the next: a bucket's ends are at most 1/16 apart. Below 32 ms each delay has its own."""
_BITS = 5
"""Bits of the leading digits, 16 to 31, of every delay from 16 ms on."""
_STEPS = ((3_600_000, 60_000), (60_000, 1000), (1000, 10))
"""(least bound, unit that a bound is rounded up to), ms."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Rows by their delay, in logarithmic buckets: 736 of them reach from 0 to the end of time.

    Addition is a commutative monoid with the identity ``Delays()``. No floating point, so
    the same rows give the same counts on every machine.

    Source: the buckets of HdrHistogram (Tene), with integer edges.

    Args:
        counts: bucket -> rows; only buckets that hold some.
        largest: the largest delay itself, ms.
    """

    counts: dict[int, int] = field(default_factory=dict)
    largest: int = 0

    @staticmethod
    def of(delays: Milliseconds) -> Delays:
        """The histogram of delays in ms; a negative delay counts as 0."""
        if not len(delays):
            return Delays()
        delays = np.maximum(delays, 0)
        buckets, counts = np.unique(bucket_of(delays), return_counts=True)
        return Delays(dict(zip(buckets.tolist(), counts.tolist(), strict=True)), int(delays.max()))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.counts.values())

    def plus(self, other: Delays) -> Delays:
        """The sum of two histograms."""
        counts = dict(self.counts)
        for bucket, rows in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + rows
        return Delays(counts, max(self.largest, other.largest))

    def quantile(self, share: float) -> int:
        """The delay, ms, behind which at most ``1 - share`` of the rows came.

        Never below the exact one, and above it by less than a sixteenth; 0 when nothing was counted.

        Args:
            share: between 0 and 1; 1 is the largest delay.
        """
        wanted, seen = ceil(Fraction(str(share)) * self.rows), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(last_of(bucket), self.largest)
        return self.largest

    def bound(self, share: float) -> int:
        """The quantile rounded up to a bound that people write, ms: rounded up to minutes from an hour on, seconds from a minute, 10 ms from a second."""
        exact = self.quantile(share)
        step = next((step for above, step in _STEPS if exact >= above), 1)
        return -(-exact // step) * step

    def as_json(self) -> dict[str, Any]:
        """For a commit's metadata."""
        return {"counts": [[bucket, self.counts[bucket]] for bucket in sorted(self.counts)], "largest": self.largest}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Delays:
        """The delays that :meth:`as_json` wrote."""
        return Delays(dict(value["counts"]), value["largest"])


def bucket_of(delays: Milliseconds) -> Milliseconds:
    """The bucket of each delay, ms from 0 on."""
    exponent = np.frexp(delays.astype(np.float64))[1].astype(np.int64)  # of the leading bit, exact below 2**53
    shift = np.maximum(exponent - _BITS, 0)
    buckets: Milliseconds = shift * _PER_OCTAVE + (delays >> shift)
    return buckets


def last_of(bucket: int) -> int:
    """The largest delay of a bucket, ms."""
    shift = max(bucket // _PER_OCTAVE - 1, 0)
    return ((bucket - shift * _PER_OCTAVE + 1) << shift) - 1
