"""Shares of an evaluation that ranks of a script send become one evaluation."""

from __future__ import annotations

from typing import Any

from distrain.runners.protocol.events import RankEvaluation
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
