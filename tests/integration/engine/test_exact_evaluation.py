"""Evaluation covers every sample exactly once, for any ranks and batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from distrain.models.build import build_task
from distrain.runners.config.schema import RunConfig
from tests.integration.engine.ranks import Outcome, run_alone, run_on_ranks

LANGUAGE = -1  # the key of the cases with the language model
SCORED = -2  # the key of those with metrics that have a state
SIZES = {1797: [None, 64], 1001: [None, 7, 1001], 7: [None, 1, 2]}


def evaluation_config(checkpoint: Path, size: int, batch_size: int | None) -> RunConfig:
    """Return a config without epochs: it loads a checkpoint and evaluates it."""
    changes = {
        "launcher": "spawn",
        "train.epochs": 0,
        "data.args": {"evaluate_on": "all"},
        "data.eval_limit": size,
        "checkpoint.load": str(checkpoint),
    }
    if batch_size:
        changes["eval.batch_size"] = batch_size
    return RunConfig().with_changes(changes)


def language_config(batch_size: int) -> RunConfig:
    """Return a config without epochs that evaluates an untrained GPT."""
    changes = {
        "launcher": "spawn",
        "train.epochs": 0,
        "task.name": "language",
        "model.name": "gpt",
        "model.args": {"layers": 1, "width": 16, "heads": 2},
        "data.name": "text",
        "data.eval_limit": 30,
        "eval.batch_size": batch_size,
    }
    return RunConfig().with_changes(changes)


def scored_config(checkpoint: Path, size: int) -> RunConfig:
    """Return a config that evaluates metrics with a state."""
    changes = {"task.name": "tests.integration.engine.tasks:Scored"}
    return evaluation_config(checkpoint, size, 13).with_changes(changes)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Return a checkpoint after a few steps, which misclassifies some images."""
    alone = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}
    run_alone(RunConfig().with_changes({**alone, "train.max_steps": 8}), tmp_path)
    return tmp_path / "checkpoints" / "last.pt"


Outcomes = dict[tuple[int, int | None], list[Outcome]]


@pytest.mark.parametrize("ranks", [1, 4])
def test_evaluation_is_that_of_one_process_for_any_ranks_and_batches(
    ranks: int, trained: Path, tmp_path: Path
) -> None:
    cases = {
        (size, batch): evaluation_config(trained, size, batch)
        for size, batches in SIZES.items()
        for batch in batches
    }
    cases |= {(LANGUAGE, batch): language_config(batch) for batch in (4, 30)}
    cases |= {(SCORED, size): scored_config(trained, size) for size in (3, 1001)}
    runs = [
        (config.with_changes({"devices": f"cpu:{ranks}"}), tmp_path / config.model.name)
        for config in cases.values()
    ]
    outcomes = dict(zip(cases, run_on_ranks(ranks, runs), strict=True))
    for size in SIZES:
        assert_counts_are_the_same_integers(size, outcomes, trained)
    assert_what_is_derived_is_the_same(outcomes)
    assert_metrics_with_a_state_are_the_same(outcomes, trained)
    assert_a_rank_without_samples_adds_nothing(outcomes, trained)


def assert_counts_are_the_same_integers(size: int, outcomes: Outcomes, trained: Path) -> None:
    loss, top1, top5 = plain_pytorch(trained, size)
    for batch_size in SIZES[size]:
        evaluation = outcomes[size, batch_size][0].evaluations[-1]
        assert evaluation.samples == size
        assert evaluation.metrics["top1"].total == top1
        assert evaluation.metrics["top5"].total == top5
        assert evaluation.metrics["loss"].total == pytest.approx(loss, rel=1e-6)
        assert {metric.count for metric in evaluation.metrics.values()} == {size}


def assert_what_is_derived_is_the_same(outcomes: Outcomes) -> None:
    config = language_config(30)
    torch.manual_seed(config.train.seed)
    task = build_task(config.task, config.model, config.data)
    tokens, targets = task.eval.__getitems__(list(range(30)))
    with torch.no_grad():
        logits = task.model.eval()(tokens).double()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    for batch_size in (4, 30):
        metrics = outcomes[LANGUAGE, batch_size][0].evaluations[-1].metrics
        assert metrics["loss"].count == targets.numel()
        assert metrics["perplexity"].value == pytest.approx(loss.exp().item(), rel=1e-6)


def assert_metrics_with_a_state_are_the_same(outcomes: Outcomes, trained: Path) -> None:
    logits, labels = outputs(trained, 1001)
    positive, negative = logits[labels == 0, 0], logits[labels != 0, 0]
    auc = float((positive[:, None] > negative).double().mean())
    found, wanted = logits.argmax(1) == 0, labels == 0
    metrics = outcomes[SCORED, 1001][0].evaluations[-1].metrics
    assert metrics["auc"].value == auc
    both = int((found & wanted).sum())
    assert metrics["zero_f1"].value == 2 * both / int(found.sum() + wanted.sum())
    assert metrics["zero_recall"].value == both / int(wanted.sum())
    assert metrics["gini"].value == 2 * auc - 1


def assert_a_rank_without_samples_adds_nothing(outcomes: Outcomes, trained: Path) -> None:
    logits, labels = outputs(trained, 3)
    positive, negative = logits[labels == 0, 0], logits[labels != 0, 0]
    metrics = outcomes[SCORED, 3][0].evaluations[-1].metrics
    assert metrics["auc"].value == float((positive[:, None] > negative).double().mean())


def plain_pytorch(checkpoint: Path, size: int) -> tuple[float, int, int]:
    """Return loss sum, top-1 and top-5 counts by plain PyTorch, all images in one batch."""
    logits, labels = outputs(checkpoint, size)
    loss = F.cross_entropy(logits.double(), labels, reduction="sum").item()
    hits = logits.topk(5).indices == labels[:, None]
    return loss, int(hits[:, 0].sum()), int(hits.any(1).sum())


def outputs(checkpoint: Path, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and labels of one process, all images in one batch."""
    config = evaluation_config(checkpoint, size, None)
    task = build_task(config.task, config.model, config.data)
    task.model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    images, labels = task.eval.__getitems__(list(range(size)))
    with torch.no_grad():
        return task.model.eval()(images), labels
