"""Shares of an evaluation that ranks of a script send become one evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.protocol.events import Finished, RankEvaluation
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.script_evaluations import ScriptEvaluations


def share(rank: int, number: int = 1, samples: int = 10, **metrics: Any) -> RankEvaluation:
    reduced = metrics.pop("reduced", False)
    return RankEvaluation(
        time=float(rank),
        rank=rank,
        number=number,
        step=number * 5,
        samples=samples,
        metrics=metrics,
        reduced=reduced,
    )


def test_means_are_weighted_by_the_samples_of_each_rank() -> None:
    evaluations = ScriptEvaluations(Evidence(world_size=2))
    assert evaluations.add(share(0, samples=1, top1=1.0, only_here=1.0)) is None
    found = evaluations.add(share(1, samples=3, top1=0.0))
    assert found is not None
    assert {name: metric.value for name, metric in found.metrics.items()} == {"top1": 0.25}
    assert (found.samples, found.step) == (4, 5)


def test_a_rank_that_is_ahead_does_not_mix_evaluations() -> None:
    evaluations = ScriptEvaluations(Evidence(world_size=2))
    for number in (1, 2):
        assert evaluations.add(share(0, number, top1=float(number))) is None
    first = evaluations.add(share(1, 1, top1=1.0))
    second = evaluations.add(share(1, 2, top1=2.0))
    assert first is not None
    assert second is not None
    assert (first.metrics["top1"].value, second.metrics["top1"].value) == (1.0, 2.0)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_mean_that_is_not_finite_on_a_rank_is_not_on_all(value: float | None) -> None:
    evaluations = ScriptEvaluations(Evidence(world_size=2))
    evaluations.add(share(0, loss=value, top1=1.0))
    found = evaluations.add(share(1, loss=0.5, top1=1.0))
    assert found is not None
    means = {name: metric.value for name, metric in found.metrics.items()}
    assert means == {"loss": None, "top1": 1.0}


@pytest.mark.parametrize("metrics", [{"top1": float("nan")}, {"top1": None}, {}])
def test_a_rank_without_samples_does_not_count(metrics: dict[str, Any]) -> None:
    evaluations = ScriptEvaluations(Evidence(world_size=2))
    evaluations.add(share(0, top1=0.5))
    found = evaluations.add(share(1, samples=0, **metrics))
    assert found is not None
    assert {name: metric.value for name, metric in found.metrics.items()} == {"top1": 0.5}


def test_shares_that_ranks_never_send_are_explained_once() -> None:
    evidence = Evidence(world_size=3)
    evaluations = ScriptEvaluations(evidence)
    # given a rank that is ahead of the others
    for number in (1, 2):
        evaluations.add(share(0, number, top1=1.0))
        assert evaluations.explain_missing() == ""
    evidence.steps = {1: 9}
    assert evaluations.explain_missing() == ""
    # when the others have passed the first evaluation, at step 5, or have ended
    evidence.finished[2] = Finished(time=0.0, rank=2, step=9)
    text = evaluations.explain_missing()
    assert text.startswith("evaluation 1 is not recorded: ranks 1–2 have not called")
    assert evaluations.explain_missing() == ""


def test_means_of_all_ranks_are_taken_from_rank_0() -> None:
    evaluations = ScriptEvaluations(Evidence(world_size=2))
    assert evaluations.add(share(1, top1=0.5, reduced=True)) is None
    found = evaluations.add(share(0, top1=0.75, reduced=True))
    assert found is not None
    assert found.metrics["top1"].value == 0.75


def test_samples_that_are_missing_give_no_mean() -> None:
    found = ScriptEvaluations(Evidence(world_size=1)).add(share(0, samples=0, top1=0.5))
    assert found is not None
    assert found.metrics["top1"].value is None
