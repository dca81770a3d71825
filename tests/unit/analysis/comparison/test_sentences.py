"""The result sentences claim no more than the figures show."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np
import pytest

from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.model import Candidate, Difference
from distrain.runners.analysis.interval import Interval
from distrain.runners.analysis.statistics import median_interval, ratio_of_medians

from .samples import candidate, comparison


def ratio(one: Candidate, other: Candidate, comparisons: int = 1) -> Interval:
    return ratio_of_medians(one.rates, other.rates, comparisons)


def test_a_ratio_is_given_with_its_interval() -> None:
    sentence = sentences.describe_ratio("ddp", "single", Interval(1.52, 1.47, 1.58))
    assert sentence == "ddp is 1.52× single (95 % CI 1.47–1.58)"


@pytest.mark.parametrize(
    ("ratio", "within"),
    [
        (Interval(1.0, 0.984, 1.01), "±2 %"),
        (Interval(1.005, 0.995, 1.02), "±2 %"),
        (Interval(1.0, 0.9996, 1.0002), "±0.1 %"),
        (Interval(1.1, 0.7, 1.3), "±30 %"),
    ],
)
def test_an_interval_that_contains_1_is_no_significant_difference(
    ratio: Interval, within: str
) -> None:
    sentence = sentences.describe_ratio("ddp", "allreduce", ratio)
    assert sentence == (f"no significant difference between ddp and allreduce (within {within})")


def test_the_fastest_is_named_with_those_not_significantly_slower() -> None:
    found = [candidate("a", 5000), candidate("b", 9000), candidate("c", 9020)]
    (sentence,) = sentences.describe_fastest(found, ratio)
    assert sentence == ("fastest: c with 8,975 samples/s (median); no significant difference to b")


def test_the_fastest_is_one_of_those_of_which_enough_was_measured() -> None:
    short = candidate("a", 9900, rates=[9900.0, 9910.0], rate=None)
    (sentence,) = sentences.describe_fastest(
        [short, candidate("b", 9000), candidate("c", 5000)], ratio
    )
    assert sentence == "fastest of b and c: b with 8,955 samples/s (median)"


def test_equal_candidates_have_no_fastest() -> None:
    (sentence,) = sentences.describe_fastest([candidate("a", 9000), candidate("b", 9020)], ratio)
    assert sentence == "no significant difference between b and a"


def test_two_equal_candidates_are_called_equal_once() -> None:
    two = [candidate("a", 9000), candidate("b", 9020)]
    (sentence,) = sentences.describe_results(two, "a", ratio)
    assert sentence.startswith("no significant difference between b and a (within ±")
    three = sentences.describe_results([*two, candidate("c", 5000)], "a", ratio)
    assert [sentence.split()[0] for sentence in three] == ["fastest:", "no", "c"]


def test_candidates_that_equal_the_fastest_are_not_called_equal_to_each_other() -> None:
    def steady(name: str, speed: float) -> Candidate:
        rates = [speed + number for number in range(7)]
        return candidate(name, speed, rates=rates, rate=median_interval(rates))

    noisy = [7000.0, 7400.0, 8200.0, 9100.0, 9400.0, 9900.0, 10200.0]
    varying = candidate("c", 9100, rates=noisy, rate=median_interval(noisy))
    three = [steady("a", 9000), steady("b", 8500), varying]
    fastest = "no significant difference between c (the highest median) and any of a and b"
    named, slower, same = sentences.describe_results(three, "a", ratio)
    assert named == fastest
    assert slower.startswith("b is 0.94× a")
    assert same.startswith("no significant difference between c and a (within ±")
    assert sentences.describe_results(three, "c", ratio) == [fastest]


def test_of_six_equal_candidates_hardly_ever_one_is_the_fastest() -> None:
    """The fastest is chosen after measuring, so its ratios count as comparisons of all pairs."""
    generator, wrong = np.random.default_rng(4), 0
    for _ in range(100):
        rates = 1000 * np.exp(generator.normal(0, 0.02, (6, 20)))
        six = [
            candidate(name, 1000, rates=list(row))
            for name, row in zip("abcdef", rates, strict=True)
        ]
        six = [msgspec.structs.replace(each, rate=median_interval(each.rates)) for each in six]
        (sentence,) = sentences.describe_fastest(six, partial(ratio, comparisons=15))
        if "no significant difference" not in sentence:
            wrong += 1
    assert wrong <= 5


def test_a_single_measured_candidate_has_no_result() -> None:
    unmeasured = candidate("b", 9000, rates=[], rate=None)
    assert sentences.describe_fastest([candidate("a", 1000), unmeasured], ratio) == []


def test_an_unequal_comparison_names_the_unequal_settings() -> None:
    sentence = sentences.describe_unequal(comparison())
    assert sentence == "unequal comparison: train.batch_size (128, 256, unset) differs"
    keys = [Difference(key=key, values=["1", "2"], fair=False) for key in "abcde"]
    many = msgspec.structs.replace(comparison(), differences=keys)
    assert sentences.describe_unequal(many).endswith("c (1, 2) and 2 more differ")


def test_a_fair_difference_is_not_unequal() -> None:
    fair = comparison(differences=[Difference(key="strategy", values=["a", "b"], fair=True)])
    assert sentences.describe_unequal(fair) == ""
