"""Intervals and ratios contain the truth as often as they claim: simulated and recorded rounds."""

import json
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path

import numpy as np
import pytest

from distrain.runners.analysis.interval import MIN_MEASUREMENTS, Interval
from distrain.runners.analysis.statistics import (
    find_outliers,
    find_steady_start,
    median_interval,
    paired_ratio,
    ratio_of_medians,
)

SIMULATED = 200
MAX_ROUNDS = 20
TARGET_PRECISION = 0.02

Noise = Callable[[np.random.Generator, int], np.ndarray]


def calm(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return generator.normal(0, 0.005, rounds)


def usual(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return generator.normal(0, 0.02, rounds)


def disturbed(generator: np.random.Generator, rounds: int) -> np.ndarray:
    """Return noise in which one run in ten is slowed down."""
    hit = generator.random(rounds) < 0.1
    return generator.normal(0, 0.015, rounds) - hit * generator.exponential(0.1, rounds)


def heavy(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return 0.01 * generator.standard_t(3, rounds)


NOISES = [calm, usual, disturbed, heavy]


def benches(noise: Noise, slowdown: float) -> list[Interval]:
    """Return the ratios that SIMULATED benches of two candidates find.

    The speed of the machine drifts, which affects both candidates.
    """
    generator = np.random.default_rng(7)
    found = []
    for _ in range(SIMULATED):
        drift = np.cumsum(generator.normal(0, 0.05, MAX_ROUNDS))
        base = 1000 * np.exp(drift + noise(generator, MAX_ROUNDS))
        other = 1000 * (1 - slowdown) * np.exp(drift + noise(generator, MAX_ROUNDS))
        found.append(one_bench(other, base))
    return found


def one_bench(rates: np.ndarray, baseline: np.ndarray) -> Interval:
    """Return the ratio of a bench that ends as soon as its interval is narrow."""
    for rounds in range(MIN_MEASUREMENTS, len(rates) + 1):
        ratio = paired_ratio(rates[:rounds], baseline[:rounds])
        if ratio.precision <= TARGET_PRECISION:
            break
    return ratio


@pytest.mark.parametrize("noise", NOISES)
def test_equal_candidates_have_no_significant_difference(noise: Noise) -> None:
    assert sum(ratio.contains(1) for ratio in benches(noise, slowdown=0)) >= 0.95 * SIMULATED


@pytest.mark.parametrize("noise", NOISES)
def test_a_slowdown_of_five_percent_is_found(noise: Noise) -> None:
    found = benches(noise, slowdown=0.05)
    assert sum(ratio.high < 1 for ratio in found) >= 0.9 * SIMULATED
    assert sum(ratio.contains(0.95) for ratio in found) >= 0.95 * SIMULATED


RECORDED = json.loads((Path(__file__).parent / "equal_candidates.json").read_text())["rounds"]


def recorded(rounds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield benches of two equal candidates, drawn from recorded rounds.

    In each round the two candidates are assigned at random.
    """
    generator = np.random.default_rng(11)
    for number in range(SIMULATED):
        known = np.array(RECORDED[number % len(RECORDED)])
        repeats = rounds > len(known)
        drawn = known[generator.choice(len(known), rounds, replace=repeats)]
        rates, baseline = generator.permuted(drawn, axis=1).T
        yield rates, baseline


def test_recorded_equal_candidates_have_no_significant_difference() -> None:
    found = [one_bench(*rounds) for rounds in recorded(MAX_ROUNDS)]
    assert sum(ratio.contains(1) for ratio in found) >= 0.95 * SIMULATED


def test_a_slowdown_of_five_percent_is_found_in_recorded_runs() -> None:
    """The recorded rates vary so much that it takes sixty rounds."""
    found = [paired_ratio(0.95 * rates, baseline) for rates, baseline in recorded(60)]
    assert sum(ratio.high < 1 for ratio in found) >= 0.9 * SIMULATED
    assert sum(ratio.contains(0.95) for ratio in found) >= 0.95 * SIMULATED


def test_of_six_equal_candidates_hardly_ever_one_stands_out() -> None:
    """Of five ratios the intervals are wider, so that they hold together."""
    generator, wrong = np.random.default_rng(3), 0
    for _ in range(SIMULATED):
        rates = np.exp(generator.normal(0, 0.01, (6, 10)))
        ratios = [paired_ratio(each, rates[0], comparisons=5) for each in rates[1:]]
        if not all(ratio.contains(1) for ratio in ratios):
            wrong += 1
    assert wrong <= 0.05 * SIMULATED


def test_a_drift_of_the_machine_affects_medians_but_not_ratios() -> None:
    drift = np.exp(np.linspace(0, 0.5, 12))
    wiggle = np.exp(np.random.default_rng(1).normal(0, 0.003, 12))
    ratio = paired_ratio(1500 * drift * wiggle, 1000 * drift)
    assert ratio.value == pytest.approx(1.5, rel=0.01)
    assert ratio.precision < 0.01
    assert median_interval(1000 * drift).precision > 0.1


def test_the_interval_of_a_median_contains_the_truth() -> None:
    generator = np.random.default_rng(5)
    found = [median_interval(np.exp(generator.normal(log(50), 0.1, 12))) for _ in range(SIMULATED)]
    assert sum(interval.contains(50) for interval in found) >= 0.93 * SIMULATED


def test_unpaired_rates_are_compared_by_their_medians() -> None:
    generator = np.random.default_rng(5)
    fast, slow = (np.exp(generator.normal(log(rate), 0.02, 30)) for rate in (120, 100))
    ratio = ratio_of_medians(fast, slow[:20])
    assert ratio.contains(1.2)
    assert ratio.low > 1.1


def test_equal_values_give_equal_intervals() -> None:
    assert median_interval([3.0, 4.0, 5.0, 4.2]) == median_interval([3.0, 4.0, 5.0, 4.2])


def test_a_ratio_and_its_inverse_have_inverse_intervals() -> None:
    slow = [10.0, 11.0, 10.4, 10.9, 10.1, 10.6, 10.2]
    fast = [20.0, 21.0, 20.2, 20.9, 19, 20, 20]
    ratio, inverse = paired_ratio(slow, fast), paired_ratio(fast, slow)
    assert ratio.value == pytest.approx(1 / inverse.value)
    assert ratio.low == pytest.approx(1 / inverse.high, rel=0.01)


def test_identical_values_have_an_interval_of_zero_width() -> None:
    assert median_interval([5.0] * 7) == Interval(*[pytest.approx(5.0)] * 3)


def test_an_outlier_is_found_and_does_not_move_the_ratio() -> None:
    baseline = [100.0, 101, 99, 100, 102, 98, 100]
    rates = [110.0, 111, 109, 55, 112, 108, 110]
    assert find_outliers(rates) == [3]
    assert paired_ratio(rates, baseline).value == pytest.approx(1.1, rel=0.01)


def test_a_warm_up_is_found() -> None:
    slow, steady = [9.0, 4.0, 2.0, 1.4], [1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 4
    assert find_steady_start([*slow, *steady]) == len(slow)


def test_a_disturbance_after_the_warm_up_is_no_warm_up() -> None:
    steady = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 4
    assert find_steady_start([3.0, *steady[:6], 4.0, *steady]) == 1


def test_costs_that_are_steady_from_the_start_have_no_warm_up() -> None:
    assert find_steady_start([1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 3) == 0


def test_costs_that_never_become_steady_have_no_start() -> None:
    assert find_steady_start(list(np.exp(-np.arange(20)))) is None
