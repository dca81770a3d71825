"""Given figures, when they are put in words, then no more is said than was found."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np
import pytest

from runners.comparison import Contestant, Difference, Interval, verdicts
from runners.statistics import median_interval, ratio_of_medians

from .made import comparison, contestant


def ratio(ours: Contestant, theirs: Contestant, judged: int = 1) -> Interval:
    return ratio_of_medians(ours.rates, theirs.rates, judged)


def test_a_ratio_is_told_with_its_interval() -> None:
    said = verdicts.against("ddp", "single", Interval(1.52, 1.47, 1.58))
    assert said == "ddp is 1.52× single (95 % CI 1.47–1.58)"


@pytest.mark.parametrize(
    ("ratio", "within"),
    [
        (Interval(1.0, 0.984, 1.01), "±2 %"),
        (Interval(1.005, 0.995, 1.02), "±2 %"),
        (Interval(1.0, 0.9996, 1.0002), "±0.1 %"),
        (Interval(1.1, 0.7, 1.3), "±30 %"),
    ],
)
def test_where_the_interval_holds_1_no_difference_was_found(ratio: Interval, within: str) -> None:
    said = verdicts.against("ddp", "allreduce", ratio)
    assert said == f"no difference found between ddp and allreduce (within {within})"


def test_the_fastest_is_told_with_those_that_could_not_be_told_apart() -> None:
    found = [contestant("a", 5000), contestant("b", 9000), contestant("c", 9020)]
    (said,) = verdicts.fastest(found, ratio)
    assert said == "fastest here: c with 8,975 samples/s; b could not be told apart from it"


def test_where_all_are_alike_none_is_the_fastest() -> None:
    (said,) = verdicts.fastest([contestant("a", 9000), contestant("b", 9020)], ratio)
    assert said == "no fastest here: b and a could not be told apart"


def test_of_six_alike_hardly_ever_one_is_the_fastest() -> None:
    """The best is chosen after looking, so it is judged beside all pairs."""
    generator, wrong = np.random.default_rng(4), 0
    for _ in range(100):
        rates = 1000 * np.exp(generator.normal(0, 0.02, (6, 20)))
        six = [
            contestant(name, 1000, rates=list(row))
            for name, row in zip("abcdef", rates, strict=True)
        ]
        six = [msgspec.structs.replace(each, rate=median_interval(each.rates)) for each in six]
        (said,) = verdicts.fastest(six, partial(ratio, judged=15))
        wrong += "could not be told apart" not in said
    assert wrong <= 5


def test_of_one_alone_nothing_is_said() -> None:
    unmeasured = contestant("b", 9000, rates=[], rate=None)
    assert verdicts.fastest([contestant("a", 1000), unmeasured], ratio) == []


def test_an_unequal_comparison_is_called_one_with_what_is_unequal() -> None:
    said = verdicts.unequal(comparison())
    assert said == "unequal comparison: train.batch_size (128, 256, unset) differs"
    keys = [Difference(key=key, values=["1", "2"], fair=False) for key in "abcde"]
    many = msgspec.structs.replace(comparison(), differences=keys)
    assert verdicts.unequal(many).endswith("c (1, 2) and 2 more differ")


def test_a_fair_difference_makes_nothing_unequal() -> None:
    fair = comparison(differences=[Difference(key="strategy", values=["a", "b"], fair=True)])
    assert verdicts.unequal(fair) == ""
