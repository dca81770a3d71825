"""Which run is called the best, by which metric, and how carefully."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.analysis.best_run import find_best


@pytest.mark.parametrize(
    ("chosen", "evaluations", "best"),
    [
        ({}, [{"loss": 0.1, "top1": 0.8}, {"loss": 0.2, "top1": 0.9}], [1]),
        ({"chosen": "loss"}, [{"loss": 0.1, "top1": 0.8}, {"loss": 0.2, "top1": 0.9}], [0]),
        ({}, [{"loss": 0.3}, {}, {"loss": 0.2}], [2]),
        ({}, [{"top1": 0.5}, {"top1": 0.5}], [0, 1]),
        ({}, [{"top1": float("nan")}, {"top1": 0.1}], [1]),
        (
            {"chosen": "perplexity", "direction": "min"},
            [{"perplexity": 3.0}, {"perplexity": 2.0}],
            [1],
        ),
        ({}, [{"f1": 0.5}, {"f1": 0.6}], []),  # which direction is better is not known
        ({}, [{}, {}], []),
    ],
)
def test_the_best_value_of_the_main_metric(
    chosen: dict[str, Any], evaluations: list[Any], best: list[int]
) -> None:
    names = ["a", "b", "c"][: len(evaluations)]
    assert list(find_best(names, evaluations, **chosen).runs) == best


def test_the_sentence_claims_no_more_than_one_run_shows() -> None:
    found = find_best(["a", "b"], [{"top1": 0.9}, {"top1": 0.8}], is_live=True)
    assert found.sentence == (
        "best so far of 2: a, top1 90.00 % (last evaluation; one run each, n = 1)"
    )
    unknown = find_best(["a", "b"], [{"f1": 0.9}, {"f1": 0.8}])
    assert unknown.sentence == "no best run by f1: it is not known which value is best"
