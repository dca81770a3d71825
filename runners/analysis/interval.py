"""Estimates with confidence intervals."""

from __future__ import annotations

import msgspec

# Rounds, or stretches of a run; a median of fewer gets no interval. Without any difference, n
# rounds all favour the same candidate with a probability of 2 / 2ⁿ (sign test). With 5 rounds it is
# 6.3 %, more than the 5 % that may be wrong; with 7 it is 1.6 %, enough for three comparisons.
MIN_MEASUREMENTS = 7

# Rates per second, and durations in seconds, whose ratios can be computed.
LEAST, MOST = 1e-9, 1e18


def is_measured(value: float | None) -> bool:
    """Return whether a rate or a duration can be compared with others: positive and plausible."""
    return value is not None and LEAST <= value <= MOST


class Interval(msgspec.Struct, frozen=True):
    """An estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def precision(self) -> float:
        """The distance to the farther end, as a share of the value."""
        if not self.value:
            return 0.0
        return max(self.high / self.value - 1, 1 - self.low / self.value)

    def divided_by(self, divisor: float) -> Interval:
        return Interval(self.value / divisor, self.low / divisor, self.high / divisor)

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high
