"""Statistics of noisy timings: steady state, confidence intervals, ratios, outliers.

Ratios are compared as logarithms, so that a ratio and its inverse are treated alike. Estimates are
medians with bootstrap intervals, which a single disturbed measurement does not move. The bootstrap
is smoothed (Silverman & Young, 1987), because the median of a few values can take only few values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from distrain.runners.analysis.interval import Interval

CONFIDENCE = 0.95
# A bench looks at its intervals after every round, which makes them wrong more often than one that
# is looked at once: at 0.99 they still contain the truth 95 times of 100 (test_statistics.py).
REPEATED_CONFIDENCE = 0.99
BOOTSTRAP_SAMPLES = 4000
SMOOTHING = 1.5  # times robust deviation / √n
DEVIATIONS_PER_MAD = 1.4826  # standard deviation / median absolute deviation, of a normal
OUTLIER_DEVIATIONS = 5.0
MIN_DEVIATION = 0.005  # of logarithms, when looking for outliers

FloatArray = NDArray[np.float64]


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median of positive values with its bootstrap interval."""
    return _median_of_logs(_logs(values), confidence)


def paired_ratio(
    values: Sequence[float], baseline: Sequence[float], comparisons: int = 1
) -> Interval:
    """Return the median ratio of values measured in the same rounds, with its interval.

    The interval holds for all `comparisons` of a bench together (Bonferroni), and although the
    bench ends as soon as its intervals are narrow.
    """
    confidence = 1 - (1 - REPEATED_CONFIDENCE) / comparisons
    return _median_of_logs(_logs(values) - _logs(baseline), confidence)


def ratio_of_medians(
    values: Sequence[float], baseline: Sequence[float], comparisons: int = 1
) -> Interval:
    """Return the ratio of the medians of unpaired values, with its interval.

    The interval holds for all `comparisons` together (Bonferroni).
    """
    logs, baseline_logs = _logs(values), _logs(baseline)
    samples = _bootstrap_medians(logs, seed=0) - _bootstrap_medians(baseline_logs, seed=1)
    estimate = float(np.median(logs) - np.median(baseline_logs))
    return _interval(estimate, samples, 1 - (1 - CONFIDENCE) / comparisons)


def find_steady_start(costs: Sequence[float]) -> int | None:
    """Return the index from which on consecutive costs (seconds per sample) are steady.

    From there on, a median of five is within three deviations of the median of the second half.
    None if no index of the first half qualifies.
    """
    values = np.asarray(costs, float)
    if len(values) < 2:
        return None
    second_half = values[len(values) // 2 :]
    typical = float(np.median(second_half))
    highest = typical + 3 * max(robust_deviation(second_half), 0.01 * typical)
    for start in range(len(values) // 2):
        ahead = values[start : start + 5]
        if np.median(ahead) <= highest and values[start] <= highest:
            return start
    return None


def robust_deviation(values: Sequence[float] | FloatArray) -> float:
    """Return the scaled median absolute deviation: a standard deviation that ignores outliers."""
    array = np.asarray(values, float)
    return float(np.median(np.abs(array - np.median(array)))) * DEVIATIONS_PER_MAD


def find_outliers(values: Sequence[float]) -> list[int]:
    """Return the indices of positive values that are far from the median, by ratio."""
    logs = _logs(values)
    if len(logs) < 4:
        return []
    limit = OUTLIER_DEVIATIONS * max(robust_deviation(logs), MIN_DEVIATION)
    return [int(i) for i in np.flatnonzero(np.abs(logs - np.median(logs)) > limit)]


def _median_of_logs(logs: FloatArray, confidence: float) -> Interval:
    return _interval(float(np.median(logs)), _bootstrap_medians(logs, seed=0), confidence)


def _interval(estimate: float, samples: FloatArray, confidence: float) -> Interval:
    """Return the interval between quantiles of bootstrap samples; all arguments are logarithms."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(
        value=float(np.exp(estimate)),
        low=float(np.exp(min(low, estimate))),
        high=float(np.exp(max(high, estimate))),
    )


def _bootstrap_medians(logs: FloatArray, seed: int) -> FloatArray:
    """Return the medians of smoothed bootstrap samples, the same for the same values."""
    count = len(logs)
    indices, noise = _bootstrap_draws(count, seed)
    width = SMOOTHING * robust_deviation(logs) / np.sqrt(count)
    ordered = np.sort(logs[indices] + width * noise, axis=1)  # several times faster than np.median
    medians: FloatArray = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return medians


@lru_cache(maxsize=4)  # of 1,000 rounds they have 64 MB
def _bootstrap_draws(count: int, seed: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the indices and the standard normal noise of the samples of `count` values."""
    generator = np.random.default_rng(seed)
    shape = (BOOTSTRAP_SAMPLES, count)
    return generator.integers(0, count, shape), generator.standard_normal(shape)


def _logs(values: Sequence[float]) -> FloatArray:
    logs: FloatArray = np.log(np.asarray(values, float))
    return logs
