"""Which run is called the best, by which metric, and how carefully."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from distrain.runners.analysis.best_run import best_metric, find_best
from distrain.runners.cli.group_presentation import GroupResults
from distrain.runners.groups import Group
from distrain.runners.runs import Run
from tests.support.records import FACTS, RunBuilder


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
        ({}, [{"top1_error": 0.5}, {"top1_error": 0.6}], []),
        ({}, [{}, {}], []),
    ],
)
def test_the_best_value_of_the_main_metric(
    chosen: dict[str, Any], evaluations: list[Any], best: list[int]
) -> None:
    names = ["a", "b", "c"][: len(evaluations)]
    assert list(find_best(names, evaluations, **chosen).runs) == best


@pytest.mark.parametrize(
    ("chosen", "named", "metric"),
    [
        ((None, None), ("mae", "min"), ("mae", "min")),
        (("f1", None), ("f1", "max"), ("f1", "max")),
        ((None, None), ("loss", "min"), (None, None)),
        (("loss", None), ("loss", "min"), ("loss", "min")),
        (("f1", "max"), ("", ""), ("f1", "max")),  # of an older version
    ],
)
def test_the_metric_that_a_task_names_decides_which_run_is_best(
    chosen: tuple[str | None, str | None],
    named: tuple[str, str],
    metric: tuple[str | None, str | None],
) -> None:
    facts = structs.replace(FACTS, best=named[0], best_is=named[1])
    assert best_metric(*chosen, facts) == metric
    assert best_metric(*chosen, None) == chosen


def test_a_sweep_of_a_task_is_judged_by_its_metric(tmp_path: Path) -> None:
    runs = []
    for mae in (3.0, 2.0):
        run = RunBuilder(tmp_path).evaluation(mae=mae, loss=1.0)
        run.writer.set_state(facts=structs.replace(FACTS, best="mae", best_is="min"))
        runs.append(Run(run.end().record))
    assert GroupResults(Group("sweep", runs)).best.runs == [1]


def test_the_sentence_claims_no_more_than_one_run_shows() -> None:
    found = find_best(["a", "b"], [{"top1": 0.9}, {"top1": 0.8}], is_live=True)
    assert found.sentence == (
        "best so far of 2: a, top1 90.00 % (last evaluation; one run each, n = 1)"
    )
    unknown = find_best(["a", "b"], [{"f1": 0.9}, {"f1": 0.8}])
    assert unknown.sentence == "no best run by f1: it is not known which value is best"
