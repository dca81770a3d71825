"""Map values to positions on an axis, and choose round values for its ticks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from math import ceil, floor, log10, nan
from typing import NamedTuple

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_CLOCK_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
)
_SUFFIXES = ("", "k", "M", "G", "T")
_NEARLY = 1e-9  # tolerance for rounding errors, as a fraction of a step
_LEAST_SPREAD = 1e-100
_LATEST = 1e11  # s: far from what the calendar of the C library can represent
LARGEST = 1e150  # sums and differences of such values are still finite


class Tick(NamedTuple):
    at: float
    label: str


class Scale(NamedTuple):
    """An axis from `low` to `high`, which may be swapped for rows that count downwards."""

    low: float
    high: float
    log: bool = False

    def places(self, values: Iterable[float], dots: int) -> list[float]:
        """Return the positions of values among `dots`, from 0 to dots - 1; NaN for values ≤ 0 on a
        log scale.
        """
        if self.log:
            low = log10(self.low)
            scale = (dots - 1) / (log10(self.high) - low)
            return [(log10(value) - low) * scale if value > 0 else nan for value in values]
        low = self.low
        scale = (dots - 1) / (self.high - low)
        return [(value - low) * scale for value in values]

    @property
    def flipped(self) -> Scale:
        return Scale(self.high, self.low, self.log)


def fit_scale(low: float, high: float, most: int, log: bool = False) -> Scale:
    """Return a scale that contains both values and ends at round ones, so that it seldom changes
    while a curve grows. `most` is the maximum number of ticks. A log scale takes positive values.
    """
    low, high = (max(-LARGEST, min(value, LARGEST)) for value in (low, high))
    if log:
        return _fitted_log(max(low, 1 / LARGEST), max(high, 1 / LARGEST))
    if high - low <= max(_NEARLY * max(abs(low), abs(high)), _LEAST_SPREAD):
        spread = abs(low) / 2 if abs(low) > _LEAST_SPREAD else 1.0
        low, high = low - spread, high + spread
    elif 0 < low < high / 4:
        low = 0.0
    elif low / 4 < high < 0:
        high = 0.0
    half = next(_round_steps((high - low) / most)) / 2
    return Scale(floor(low / half + _NEARLY) * half, ceil(high / half - _NEARLY) * half)


def _fitted_log(low: float, high: float) -> Scale:
    """Return a log scale that ends at tenths of a decade."""
    start, end = floor(log10(low) * 10 + _NEARLY), ceil(log10(high) * 10 - _NEARLY)
    if start == end:
        start, end = start - 3, end + 3
    return Scale(10 ** (start / 10), 10 ** (end / 10), log=True)


# --- ticks ---------------------------------------------------------------------------------------


def value_ticks(scale: Scale, most: int) -> Iterator[list[Tick]]:
    """Yield choices of ticks for a y axis, from at most `most` ticks to ever fewer."""
    if scale.log:
        for values in _log_values(scale):
            if min(2, most) <= len(values) <= most:
                yield [Tick(value, tick_labels([value], value)[0]) for value in values]
    for found in ticks("value", scale.low, scale.high, most):
        yield [tick for tick in found if tick.at > 0] if scale.log else found


def _log_values(scale: Scale) -> Iterator[list[float]]:
    """Yield 1, 2 and 5 of each decade, then whole decades, then ever fewer decades."""
    decades = range(floor(log10(scale.low)) - 1, ceil(log10(scale.high)) + 1)
    for every, digits in ((1, (1, 2, 5)), *((every, (1,)) for every, _ in enumerate(decades, 1))):
        values = [digit * 10.0**power for power in decades[::every] for digit in digits]
        low, high = scale.low * (1 - _NEARLY), scale.high * (1 + _NEARLY)
        yield [value for value in values if low <= value <= high]


def ticks(kind: str, low: float, high: float, most: int) -> Iterator[list[Tick]]:
    """Yield choices of ticks for a linear axis, from at most `most` ticks to ever fewer, forever.

    `kind` is "step", "epoch", "value", "time" (Unix seconds, shown in local time) or "duration"
    (seconds).
    """
    least = (high - low) / (max(most, 1) + 1)
    if kind == "time" and max(-low, high) > _LATEST:  # in a damaged record
        kind = "value"
    if kind in ("time", "duration"):
        zone = time.localtime(low).tm_gmtoff if kind == "time" else 0
        word = _clock if kind == "time" else _duration
        for step in _clock_steps(least):
            values = _multiples(step, low + zone, high + zone)
            if len(values) <= most:
                yield [Tick(value - zone, word(value - zone, step)) for value in values]
    else:
        for step in _round_steps(max(least, 1.0) if kind == "step" else least):
            values = _multiples(step, low, high)
            if len(values) <= most:
                yield list(map(Tick, values, tick_labels(values, step)))


def tick_labels(values: Sequence[float], step: float) -> list[str]:
    """Format numbers that are a step apart, with enough decimals to be distinct: "0.05", "1,500",
    "12.5k", "2e-05", "2e+19".
    """
    top = max(map(abs, values), default=0.0)
    if top and not 1e-3 <= top <= 1e18:
        digits = _decimals(step / 10 ** floor(log10(top)))
        return [f"{value:.{digits}e}" if value else "0" for value in values]
    power = min(int(log10(top)) // 3, len(_SUFFIXES) - 1) if top >= 10_000 else 0
    unit, suffix = 1000.0**power, _SUFFIXES[power]
    if _decimals(step / unit) > 2 and power:
        unit, suffix = 1.0, ""
    digits = _decimals(step / unit)
    return [f"{value / unit:,.{digits}f}{suffix}" if value else "0" for value in values]


def _decimals(step: float) -> int:
    return max(0, -floor(log10(step) + _NEARLY))


def _multiples(step: float, low: float, high: float) -> list[float]:
    first, last = ceil(low / step - _NEARLY), floor(high / step + _NEARLY)
    return [at * step for at in range(first, last + 1)]


def _round_steps(least: float) -> Iterator[float]:
    """Yield steps of 1, 2 and 5 times powers of ten, from `least` upwards."""
    for power in count(floor(log10(least))):
        for digit in (1, 2, 5):
            step = digit * 10.0**power
            if step >= least * (1 - _NEARLY):
                yield step


def _clock_steps(least: float) -> Iterator[float]:
    yield from (step for step in _CLOCK_STEPS if step >= least)
    yield from (days * _DAY for days in _round_steps(max(least / _DAY, 1.0)))


def _clock(moment: float, step: float) -> str:
    at = time.localtime(moment)
    if step >= _DAY or (step >= _MINUTE and at.tm_hour == at.tm_min == 0):
        return f"{time.strftime('%b', at)} {at.tm_mday}"
    return time.strftime("%H:%M" if step >= _MINUTE else "%H:%M:%S", at)


def _duration(seconds: float, step: float) -> str:
    for size, word in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if step >= size:
            return f"{seconds / size:g} {word}"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


# --- labels under an axis ------------------------------------------------------------------------


class AxisLabel(NamedTuple):
    """A label of an axis: the cell where it starts, and the cell of its value."""

    start: int
    about: int
    text: str


def axis_labels(kind: str, scale: Scale, cells: int) -> list[AxisLabel]:
    """Return labels for an x axis of `cells` cells that do not touch, one per 9 cells at most."""
    for found in ticks(kind, scale.low, scale.high, max(1, cells // 9)):
        placed = [place_label(scale, tick, cells) for tick in found]
        ends = [0, *(at.start + len(at.text) + 2 for at in placed)]
        if all(at.start >= end for at, end in zip(placed, ends, strict=False)):
            return [at for at in placed if at.start + len(at.text) <= cells]
        if len(found) <= 1:
            break
    return []


def place_label(scale: Scale, tick: Tick, cells: int) -> AxisLabel:
    """Return the label of a tick, centred below its value but within the axis."""
    about = round(scale.places([tick.at], 2 * cells)[0]) // 2
    start = about - len(tick.label) // 2
    return AxisLabel(max(0, min(start, cells - len(tick.label))), about, tick.label)
