"""The x axis of the charts of a run, on which its record is read by step or by time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from distrain.runners.protocol.events import Facts
from distrain.runners.records.timeseries.series import LOGGED


class XAxis(NamedTuple):
    """An axis "step", "epoch" or "time".

    Times are seconds after `began`. "epoch" counts finished epochs, with the finished part of the
    current one; where `facts` lack the length of an epoch, it is what the record has for a step.
    """

    name: str
    facts: Facts | None = None
    began: float = 0.0

    @property
    def column(self) -> str:
        """The column to read of the record."""
        return "step" if self._counts_steps else self.name

    @property
    def of_logged(self) -> XAxis:
        """The axis for logged values, of which the record has no epoch."""
        return self if self.column in LOGGED.axes else self._replace(name="step")

    def values(self, column: Sequence[float]) -> Sequence[float]:
        """Return x for the values of `column`."""
        if self._counts_steps:
            assert self.facts is not None
            return array("d", map(self.facts.epoch_at, column))
        if self.name == "time" and self.began:
            return array("d", [at - self.began for at in column])
        return column

    def limits(self, span: tuple[float, float]) -> tuple[float, float]:
        """Return the values of `column` between which x is in the span."""
        low, high = span
        if self._counts_steps:
            assert self.facts is not None
            return self.facts.step_at(low), self.facts.step_at(high)
        began = self.began if self.name == "time" else 0.0
        return low + began, high + began

    @property
    def _counts_steps(self) -> bool:
        return self.name == "epoch" and self.facts is not None and self.facts.has_epochs
