"""Patience counts evaluations without a better score, also across a checkpoint."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.runners.config.training_sections import CheckpointConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Metric
from distrain.runners.training.best import BestScore, Patience


def make_patience(limit: int | None) -> Patience:
    task: Any = SimpleNamespace(best="top1", best_is="max")
    return Patience(limit, BestScore(CheckpointConfig(), task))


def test_patience_starts_again_with_every_better_score() -> None:
    patience = make_patience(2)
    found = []
    for score in (0.5, 0.4, 0.6, 0.6, None):
        patience.add(score)
        found.append((patience.waited, patience.is_exhausted))
    assert found == [(0, False), (1, False), (0, False), (1, False), (2, True)]
    assert patience.reason == "no better top1 in 2 evaluations (train.patience)"


def test_patience_of_a_checkpoint_goes_on_and_a_damaged_one_starts_again() -> None:
    patience = make_patience(2)
    patience.add(0.7)
    patience.add(0.6)
    resumed = make_patience(2)
    resumed.load_state(patience.state())
    resumed.add(0.65)
    assert resumed.is_exhausted
    resumed.load_state({"score": "much", "waited": -1})
    resumed.add(0.1)
    assert (resumed.waited, resumed.is_exhausted) == (0, False)


def test_without_a_limit_training_never_ends_early() -> None:
    patience = make_patience(None)
    for _ in range(5):
        patience.add(None)
    assert not patience.is_exhausted


def test_a_metric_that_follows_from_a_loss_that_is_not_finite_has_no_score() -> None:
    # nothing is derived from such a loss, as in an evaluation of a model that has diverged
    task: Any = SimpleNamespace(best="perplexity", best_is="min")
    best = BestScore(CheckpointConfig(), task)
    assert best.score_of({"loss": Metric.of(math.nan, 8)}) is None
    with pytest.raises(ConfigError, match="there is no metric 'perplexity'"):
        best.score_of({"loss": Metric.of(16.0, 8)})
