"""All evaluations of a run in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from typing import overload

from distrain.runners.protocol.events import Evaluation, Metric

NUMBERS = ("time", "epoch", "step", "samples", "seconds")
ABSENT = -1.0  # as the count of a metric that an evaluation does not have


class EvaluationHistory(Sequence[Evaluation]):
    """Evaluations in the order in which they came, as columns of numbers.

    One has 56 bytes and 16 for each metric, where the object has a kilobyte: a run may evaluate
    every second for days. An item is made when it is asked for.
    """

    def __init__(self) -> None:
        self._numbers = {name: array("d") for name in NUMBERS}
        self._totals: dict[str, array[float]] = {}
        self._counts: dict[str, array[float]] = {}

    def append(self, evaluation: Evaluation) -> None:
        for name in evaluation.metrics:
            if name not in self._totals:  # the ones before do not have it
                self._totals[name] = array("d", [nan]) * len(self)
                self._counts[name] = array("d", [ABSENT]) * len(self)
        for name, numbers in self._numbers.items():
            numbers.append(getattr(evaluation, name))
        for name, totals in self._totals.items():
            metric = evaluation.metrics.get(name)
            totals.append(nan if metric is None or metric.total is None else metric.total)
            self._counts[name].append(ABSENT if metric is None else metric.count)

    def discard_after(self, step: int) -> None:
        """Forget the evaluations after a step, which the ranks repeat."""
        kept = [at for at, found in enumerate(self._numbers["step"]) if found <= step]
        for columns in (self._numbers, self._totals, self._counts):
            for name, column in columns.items():
                columns[name] = array("d", [column[at] for at in kept])

    def copy(self) -> EvaluationHistory:
        copied = EvaluationHistory()
        copied._numbers = {name: column[:] for name, column in self._numbers.items()}
        copied._totals = {name: column[:] for name, column in self._totals.items()}
        copied._counts = {name: column[:] for name, column in self._counts.items()}
        return copied

    @property
    def names(self) -> list[str]:
        """The metrics that any of the evaluations has, in the order in which they came first."""
        return [
            name
            for name, counts in self._counts.items()
            if any(count != ABSENT for count in counts)
        ]

    def curve(self, metric: str, axis: str) -> tuple[array[float], array[float]]:
        """Return "step", "epoch" or "time" of the evaluations with a metric, and its means.

        A mean is NaN where the sum is not finite.
        """
        x, y = array("d"), array("d")
        totals, counts = self._totals.get(metric, ()), self._counts.get(metric, ())
        for at, (total, count) in enumerate(zip(totals, counts, strict=True)):
            if count != ABSENT:
                x.append(self._numbers[axis][at])
                y.append(total / count if count else nan)
        return x, y

    def __len__(self) -> int:
        return len(self._numbers["time"])

    @overload
    def __getitem__(self, at: int) -> Evaluation: ...
    @overload
    def __getitem__(self, at: slice) -> list[Evaluation]: ...
    def __getitem__(self, at: int | slice) -> Evaluation | list[Evaluation]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        numbers = {name: column[at] for name, column in self._numbers.items()}
        return Evaluation(
            time=numbers["time"],
            epoch=int(numbers["epoch"]),
            step=int(numbers["step"]),
            samples=int(numbers["samples"]),
            seconds=numbers["seconds"],
            metrics={
                name: Metric.of(totals[at], int(count))
                for name, totals in self._totals.items()
                if (count := self._counts[name][at]) != ABSENT
            },
        )
