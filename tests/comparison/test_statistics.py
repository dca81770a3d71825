"""What may be concluded from timings: on simulated rounds, and on recorded ones."""

import json
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path

import numpy as np
import pytest

from runners.comparison import LEAST, Interval
from runners.statistics import (
    median_interval,
    outliers,
    paired_ratio,
    ratio_of_medians,
    steady_from,
)

SIMULATED = 200
MOST = 20
NARROW = 0.02

Noise = Callable[[np.random.Generator, int], np.ndarray]


def calm(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return generator.normal(0, 0.005, rounds)


def usual(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return generator.normal(0, 0.02, rounds)


def disturbed(generator: np.random.Generator, rounds: int) -> np.ndarray:
    """One run in ten is slowed down by something else."""
    hit = generator.random(rounds) < 0.1
    return generator.normal(0, 0.015, rounds) - hit * generator.exponential(0.1, rounds)


def heavy(generator: np.random.Generator, rounds: int) -> np.ndarray:
    return 0.01 * generator.standard_t(3, rounds)


NOISES = [calm, usual, disturbed, heavy]


def benches(noise: Noise, slowdown: float) -> list[Interval]:
    """What so many benches of two contestants conclude, each ended as a bench ends itself. The
    machine's own pace drifts by a fifth, which both feel.
    """
    generator = np.random.default_rng(7)
    found = []
    for _ in range(SIMULATED):
        drift = np.cumsum(generator.normal(0, 0.05, MOST))
        base = 1000 * np.exp(drift + noise(generator, MOST))
        other = 1000 * (1 - slowdown) * np.exp(drift + noise(generator, MOST))
        found.append(one_bench(other, base))
    return found


def one_bench(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    for rounds in range(LEAST, len(ours) + 1):
        ratio = paired_ratio(ours[:rounds], theirs[:rounds])
        if ratio.precision <= NARROW:
            break
    return ratio


@pytest.mark.parametrize("noise", NOISES)
def test_of_the_same_against_itself_no_difference_is_found(noise: Noise) -> None:
    assert sum(ratio.holds(1) for ratio in benches(noise, slowdown=0)) >= 0.95 * SIMULATED


@pytest.mark.parametrize("noise", NOISES)
def test_a_slowdown_of_five_percent_is_found(noise: Noise) -> None:
    found = benches(noise, slowdown=0.05)
    assert sum(ratio.high < 1 for ratio in found) >= 0.9 * SIMULATED
    assert sum(ratio.holds(0.95) for ratio in found) >= 0.95 * SIMULATED


RECORDED = json.loads((Path(__file__).parent / "alike.json").read_text())["rounds"]


def recorded(rounds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Benches of rounds that were recorded of two contestants that were the same. For each some are
    drawn, and in each of these which of the two is called the other.
    """
    generator = np.random.default_rng(11)
    for number in range(SIMULATED):
        known = np.array(RECORDED[number % len(RECORDED)])
        few = rounds <= len(known)
        drawn = known[generator.choice(len(known), rounds, replace=not few)]
        ours, theirs = generator.permuted(drawn, axis=1).T
        yield ours, theirs


def test_of_recorded_runs_of_the_same_no_difference_is_found() -> None:
    found = [one_bench(*rounds) for rounds in recorded(MOST)]
    assert sum(ratio.holds(1) for ratio in found) >= 0.95 * SIMULATED


def test_a_slowdown_of_five_percent_is_found_in_recorded_runs() -> None:
    """These were so restless that it takes sixty rounds; fewer say that they do not know."""
    found = [paired_ratio(0.95 * ours, theirs) for ours, theirs in recorded(60)]
    assert sum(ratio.high < 1 for ratio in found) >= 0.9 * SIMULATED
    assert sum(ratio.holds(0.95) for ratio in found) >= 0.95 * SIMULATED


def test_of_six_alike_hardly_ever_one_stands_out() -> None:
    """Five ratios at once: the interval is wider, so that all of them together hold."""
    generator, wrong = np.random.default_rng(3), 0
    for _ in range(SIMULATED):
        rates = np.exp(generator.normal(0, 0.01, (6, 10)))
        ratios = [paired_ratio(each, rates[0], comparisons=5) for each in rates[1:]]
        wrong += not all(ratio.holds(1) for ratio in ratios)
    assert wrong <= 0.05 * SIMULATED


def test_a_drift_of_the_machine_is_in_the_medians_and_not_in_the_ratio() -> None:
    drift = np.exp(np.linspace(0, 0.5, 12))
    wiggle = np.exp(np.random.default_rng(1).normal(0, 0.003, 12))
    ratio = paired_ratio(1500 * drift * wiggle, 1000 * drift)
    assert ratio.value == pytest.approx(1.5, rel=0.01)
    assert ratio.precision < 0.01
    assert median_interval(1000 * drift).precision > 0.1


def test_the_interval_of_a_median_holds_the_truth() -> None:
    generator = np.random.default_rng(5)
    found = [median_interval(np.exp(generator.normal(log(50), 0.1, 12))) for _ in range(SIMULATED)]
    assert sum(interval.holds(50) for interval in found) >= 0.93 * SIMULATED


def test_what_does_not_belong_together_is_compared_by_its_medians() -> None:
    generator = np.random.default_rng(5)
    fast, slow = (np.exp(generator.normal(log(rate), 0.02, 30)) for rate in (120, 100))
    ratio = ratio_of_medians(fast, slow[:20])
    assert ratio.holds(1.2)
    assert ratio.low > 1.1


def test_the_same_figures_give_the_same_interval() -> None:
    assert median_interval([3.0, 4.0, 5.0, 4.2]) == median_interval([3.0, 4.0, 5.0, 4.2])


def test_a_ratio_and_its_inverse_are_judged_alike() -> None:
    ours, theirs = [10.0, 11.0, 10.4, 10.9, 10.1, 10.6, 10.2], [20.0, 21.0, 20.2, 20.9, 19, 20, 20]
    one, other = paired_ratio(ours, theirs), paired_ratio(theirs, ours)
    assert one.value == pytest.approx(1 / other.value)
    assert one.low == pytest.approx(1 / other.high, rel=0.01)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert median_interval([5.0] * 7) == Interval(*[pytest.approx(5.0)] * 3)


def test_an_outlier_is_told_and_does_not_move_the_ratio() -> None:
    theirs = [100.0, 101, 99, 100, 102, 98, 100]
    ours = [110.0, 111, 109, 55, 112, 108, 110]
    assert outliers(ours) == [3]
    assert paired_ratio(ours, theirs).value == pytest.approx(1.1, rel=0.01)


def test_a_warm_up_is_found() -> None:
    slow, steady = [9.0, 4.0, 2.0, 1.4], [1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 4
    assert steady_from([*slow, *steady]) == len(slow)


def test_a_disturbance_after_the_warm_up_is_no_warm_up() -> None:
    steady = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 4
    assert steady_from([3.0, *steady[:6], 4.0, *steady]) == 1


def test_what_is_steady_from_the_first_has_no_warm_up() -> None:
    assert steady_from([1.0, 1.02, 0.98, 1.01, 0.99, 1.0] * 3) == 0


def test_what_never_becomes_steady_is_told() -> None:
    assert steady_from(list(np.exp(-np.arange(20)))) is None
