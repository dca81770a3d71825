"""An estimate with its interval; how it is found is `statistics`."""

from __future__ import annotations

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """An estimate and the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def precision(self) -> float:
        """The farther end as a share of the value."""
        return max(self.high / self.value - 1, 1 - self.low / self.value) if self.value else 0.0

    def over(self, divisor: float) -> Interval:
        return Interval(self.value / divisor, self.low / divisor, self.high / divisor)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high
