"""Comparison: ways of training beside each other, as figures with intervals and verdicts in words.

One object holds what the command line, the report and the app show of runs or of a bench, so that
all of them say the same. Owns how things are compared; a bench owns how they are measured.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

LEAST = 7  # rounds, or stretches: fewer give a median no interval that deserves the name


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


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A key that contestants differ in: a value for each, None where unset. `fair` is one that
    they may differ in, because it is what is compared.
    """

    key: str
    values: list[str | None]
    fair: bool


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of at most some hundreds of points by optimizer step (empty for what is sampled by
    time alone) and by seconds since the first step began. A missing value is None.
    """

    step: list[float] = []
    time: list[float]
    values: list[float | None]


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """One way of training. What was not measured, or cannot be told, is None or empty.

    `rates` are samples/s: of each round of a bench, of each stretch of a run. `ratio` is to the
    baseline, `efficiency` samples/s per device as a share of `single`'s. `phases` are shares of
    the step, with "other"; `overlap` is communication hidden behind backward, as a share of the
    step, in none of them. Memory in bytes at its peak, utilisation in percent, energy in joules.
    `seconds_to_target` is known where every round came there, `target_ratio` is its ratio to the
    baseline's.
    `folders` are its records. `curves` are "loss", each metric of the evaluations as "eval …", and
    "gpu" (percent) and "power" (watts of all its devices) where they were measured.
    """

    name: str
    strategy: str
    launcher: str
    precision: str
    world_size: int | None
    devices: list[str]
    folders: list[str]
    rates: list[float] = []
    outliers: list[int] = []
    rate: Interval | None = None
    ratio: Interval | None = None
    efficiency: Interval | None = None
    phases: dict[str, float] = {}
    overlap: float | None = None
    host_memory: float | None = None
    device_memory: float | None = None
    cpu: float | None = None
    gpu: float | None = None
    joules_per_sample: float | None = None
    seconds_to_target: Interval | None = None
    target_ratio: Interval | None = None
    metrics: dict[str, float | None] = {}
    curves: dict[str, Line] = {}
    diagnosis: str = ""
    problem: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown. `equal` are the settings that all have in common, as they are printed;
    `target` is what all were trained to, as it is printed, empty where there was none; `warnings`
    say what makes the comparison unequal or unsure.
    """

    title: str
    kind: Literal["runs", "bench"]
    baseline: str
    contestants: list[Contestant]
    verdicts: list[str]
    equal: dict[str, str]
    differences: list[Difference]
    target: str = ""
    warnings: list[str] = []
    provenance: dict[str, Any] = {}

    @property
    def unequal(self) -> list[Difference]:
        """What should not differ, and does."""
        return [each for each in self.differences if not each.fair]
