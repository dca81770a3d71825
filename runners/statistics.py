"""What may be concluded from noisy timings: steady state, intervals, ratios, outliers.

Ratios are compared as logarithms, so that a ratio and its inverse are judged alike. A median and
its bootstrap are used throughout: one round that something else disturbed does not move them. The
bootstrap is smoothed (Silverman & Young, 1987), as few rounds leave a median few values to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runners.comparison import Interval

CONFIDENCE = 0.95
# An interval that is looked at after every round is wrong more often than one that is looked at
# once: at 0.99 it still holds the truth 95 times of 100 (tests/comparison/test_statistics.py).
WATCHED = 0.99
DRAWS = 4000
SMOOTHING = 1.5  # times MAD / √n
MAD_OF_NORMAL = 1.4826  # standard deviations in a median absolute deviation
FAR = 5.0  # of such deviations: an outlier

Figures = NDArray[np.float64]


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of positive values with its bootstrap interval."""
    return _exp(_logs(values), confidence)


def paired_ratio(
    values: Sequence[float], baseline: Sequence[float], comparisons: int = 1
) -> Interval:
    """Median ratio of two measurements of the same rounds, with an interval that holds for all
    `comparisons` of a bench together (Bonferroni), and although it ends when they are narrow.
    """
    confidence = 1 - (1 - WATCHED) / comparisons
    return _exp(_logs(values) - _logs(baseline), confidence)


def ratio_of_medians(
    values: Sequence[float], baseline: Sequence[float], comparisons: int = 1
) -> Interval:
    """The ratio of two medians of measurements that do not belong together."""
    ours, theirs = _logs(values), _logs(baseline)
    generator = _generator()
    drawn = _medians(ours, generator) - _medians(theirs, generator)
    centre = float(np.median(ours) - np.median(theirs))
    return _between(centre, drawn, 1 - (1 - CONFIDENCE) / comparisons)


def steady_from(costs: Sequence[float]) -> int | None:
    """The first of consecutive costs (seconds per sample) that belongs to the steady state: from
    there on a median of five is within three deviations of the later half's median. None where
    that is nowhere in the first half.
    """
    values = np.asarray(costs, float)
    if len(values) < 2:
        return None
    late = values[len(values) // 2 :]
    highest = np.median(late) + 3 * max(deviation(late), 0.01 * float(np.median(late)))
    for start in range(len(values) // 2):
        ahead = values[start : start + 5]
        if np.median(ahead) <= highest and values[start] <= highest:
            return start
    return None


def deviation(values: Sequence[float] | Figures) -> float:
    """A standard deviation that outliers do not move: the scaled median absolute deviation."""
    figures = np.asarray(values, float)
    return float(np.median(np.abs(figures - np.median(figures)))) * MAD_OF_NORMAL


def outliers(values: Sequence[float]) -> list[int]:
    """Indices of values that are far from the others, judged by ratio."""
    logs = _logs(values)
    if len(logs) < 4:
        return []
    limit = FAR * max(deviation(logs), 0.005)
    return [int(i) for i in np.flatnonzero(np.abs(logs - np.median(logs)) > limit)]


def _exp(logs: Figures, confidence: float) -> Interval:
    return _between(float(np.median(logs)), _medians(logs, _generator()), confidence)


def _between(centre: float, drawn: Figures, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(*(float(np.exp(x)) for x in (centre, min(low, centre), max(high, centre))))


def _medians(logs: Figures, generator: np.random.Generator) -> Figures:
    """Medians of smoothed bootstrap samples."""
    count = len(logs)
    drawn = logs[generator.integers(0, count, (DRAWS, count))]
    width = SMOOTHING * deviation(logs) / np.sqrt(count)
    smoothed = drawn + generator.normal(0.0, width, drawn.shape)
    medians: Figures = np.median(smoothed, axis=1)
    return medians


def _logs(values: Sequence[float]) -> Figures:
    logs: Figures = np.log(np.asarray(values, float))
    return logs


def _generator() -> Any:
    return np.random.default_rng(0)  # the same figures give the same interval
