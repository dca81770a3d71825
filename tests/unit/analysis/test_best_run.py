"""Which run is called the best, by which metric, and how carefully."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.analysis.best_run import find_best
from distrain.runners.config.schema import RunConfig

CONFIG = RunConfig()
BY_LOSS = CONFIG.with_changes({"checkpoint.best": "loss"})
BY_PERPLEXITY = CONFIG.with_changes({"checkpoint.best": "perplexity", "checkpoint.best_is": "min"})


@pytest.mark.parametrize(
    ("config", "evaluations", "best"),
    [
        (CONFIG, [{"loss": 0.1, "top1": 0.8}, {"loss": 0.2, "top1": 0.9}], [1]),
        (BY_LOSS, [{"loss": 0.1, "top1": 0.8}, {"loss": 0.2, "top1": 0.9}], [0]),
        (CONFIG, [{"loss": 0.3}, None, {"loss": 0.2}], [2]),
        (CONFIG, [{"top1": 0.5}, {"top1": 0.5}], [0, 1]),
        (CONFIG, [{"top1": float("nan")}, {"top1": 0.1}], [1]),
        (BY_PERPLEXITY, [{"perplexity": 3.0}, {"perplexity": 2.0}], [1]),
        (CONFIG, [{"f1": 0.5}, {"f1": 0.6}], []),  # which direction is better is not known
        (CONFIG, [None, None], []),
    ],
)
def test_the_best_value_of_the_main_metric(
    config: RunConfig, evaluations: list[Any], best: list[int]
) -> None:
    names = ["a", "b", "c"][: len(evaluations)]
    assert list(find_best(names, [config] * len(names), evaluations).runs) == best


def test_the_sentence_claims_no_more_than_one_run_shows() -> None:
    found = find_best(["a", "b"], [CONFIG] * 2, [{"top1": 0.9}, {"top1": 0.8}], is_live=True)
    assert found.sentence == (
        "best so far of 2: a, top1 90.00 % (last evaluation); "
        "n = 1, one run each, so no statement about noise"
    )
    unknown = find_best(["a", "b"], [CONFIG] * 2, [{"f1": 0.9}, {"f1": 0.8}])
    assert unknown.sentence == "no best run by f1: it is not known which value is best"
