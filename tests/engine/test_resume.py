"""A checkpoint holds everything that training needs to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from runners.config import RunConfig
from runners.errors import ConfigError
from runners.events import Finished
from tests.engine.ranks import Outcome, Stopped, alone, on_ranks

# A CNN with dropout: random numbers of every rank matter. 150 = 4 × 32 + 22.
BASE = RunConfig().with_changes(
    {
        "launcher": "spawn",
        "devices": "cpu:2",
        "model.name": "cnn",
        "train.epochs": 4,
        "train.batch_size": 32,
        "train.lr": 0.02,
        "train.deterministic": True,
        "data.train_limit": 150,
        "data.eval_limit": 50,
        "checkpoint.keep": 2,
    }
)
WAYS = {
    "ddp": {},
    "allreduce adam": {"strategy": "allreduce", "train.optimizer": "adam", "train.lr": 0.001},
    "step schedule": {"train.schedule": "step", "train.step_epochs": 1.0},
    "powerSGD": {"ddp.comm_hook": "powerSGD", "ddp.powersgd_start": 3},
    "loader workers": {"data.workers": 2},
    "augmented": {"data.name": "tests.engine.tasks:jittered_digits"},
}
ALONE: dict[str, Any] = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}


def test_four_epochs_straight_equal_two_and_two_bit_for_bit(tmp_path: Path) -> None:
    cases = []
    for way, changes in WAYS.items():
        config = BASE.with_changes(changes)
        first, second = tmp_path / way / "first", tmp_path / way / "second"
        cases += [
            (config, tmp_path / way / "straight"),
            (config.with_changes({"train.epochs": 2}), first),
            (config.with_changes({"checkpoint.load": f"{first}/checkpoints/last.pt"}), second),
        ]
    for _, folder in cases:
        folder.mkdir(parents=True)
    results = on_ranks(2, cases)
    for index, way in enumerate(WAYS):
        straight, _, resumed = results[3 * index : 3 * index + 3]
        for rank in range(2):
            assert_identical(straight[rank], resumed[rank], way)


@pytest.mark.parametrize("stop_after", [7, 12])
def test_resuming_in_the_middle_of_an_epoch_is_exact(stop_after: int, tmp_path: Path) -> None:
    config = BASE.with_changes(ALONE)
    straight = alone(config, tmp_path)
    alone(config.with_changes({"train.max_steps": stop_after}), tmp_path)
    last = tmp_path / "checkpoints" / f"step-{stop_after:08d}.pt"
    resumed = alone(config.with_changes({"checkpoint.load": str(last)}), tmp_path)
    assert_identical(straight, resumed, f"stopped after {stop_after}")


def test_fp16_resumes_with_its_loss_scale(tmp_path: Path) -> None:
    config = BASE.with_changes(
        {
            **ALONE,
            "precision": "fp16",
            "task.name": "tests.engine.tasks:huge_loss",
            "train.clip_norm": 1.0,
        }
    )
    straight = alone(config, tmp_path / "straight")
    alone(config.with_changes({"train.epochs": 2}), tmp_path)
    load = {"checkpoint.load": f"{tmp_path}/checkpoints/last.pt"}
    assert_identical(straight, alone(config.with_changes(load), tmp_path), "fp16")


def test_another_strategy_and_world_size_go_on_with_the_same_samples(tmp_path: Path) -> None:
    # given a network without dropout, whose course does not depend on the ranks
    config = BASE.with_changes({"model.name": "mlp", "train.deterministic": False})
    straight = alone(config.with_changes(ALONE), tmp_path)
    # when one process begins and three ranks by hand-written all-reduce go on
    alone(config.with_changes({**ALONE, "train.max_steps": 7}), tmp_path)
    changes = {
        "strategy": "allreduce",
        "devices": "cpu:3",
        "checkpoint.load": str(tmp_path / "checkpoints" / "step-00000007.pt"),
    }
    resumed = on_ranks(3, [(config.with_changes(changes), tmp_path)])[0][0]
    # then the weights are those of the straight run
    for name, tensor in straight.model.items():
        torch.testing.assert_close(resumed.model[name], tensor, rtol=1e-4, atol=2e-6, msg=name)


def test_newest_and_best_are_kept_and_nothing_partial(tmp_path: Path) -> None:
    alone(BASE.with_changes({**ALONE, "train.epochs": 6, "checkpoint.keep": 2}), tmp_path)
    folder = tmp_path / "checkpoints"
    files = sorted(path.name for path in folder.glob("step-*.pt"))
    best, last = (folder / name for name in ("best.pt", "last.pt"))
    assert files[-1] == last.resolve().name
    assert len(files) <= 3
    assert best.resolve().name in files
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"nonsense", "cannot be read"), (None, "there is no file"), ({}, "not a checkpoint")],
)
def test_a_bad_checkpoint_is_refused_in_a_sentence(
    content: Any, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ConfigError, match=sentence):
        alone(BASE.with_changes({**ALONE, "checkpoint.load": str(path)}), tmp_path)


def test_a_checkpoint_of_another_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    alone(BASE.with_changes({**ALONE, "train.max_steps": 1}), tmp_path)
    other = {**ALONE, "model.name": "mlp", "checkpoint.load": f"{tmp_path}/checkpoints/last.pt"}
    with pytest.raises(ConfigError, match="another model"):
        alone(BASE.with_changes(other), tmp_path)


def test_options_changed_for_a_resumption_are_the_optimizers(tmp_path: Path) -> None:
    alone(BASE.with_changes({**ALONE, "train.max_steps": 2}), tmp_path)
    changed = {
        **ALONE,
        "train.max_steps": 3,
        "train.momentum": 0.5,
        "train.weight_decay": 0.1,
        "checkpoint.load": f"{tmp_path}/checkpoints/last.pt",
    }
    (group,) = alone(BASE.with_changes(changed), tmp_path).optimizer["param_groups"]
    assert (group["momentum"], group["weight_decay"]) == (0.5, 0.1)


def test_another_optimizer_is_refused_in_a_sentence(tmp_path: Path) -> None:
    alone(BASE.with_changes({**ALONE, "train.max_steps": 1}), tmp_path)
    other = {
        **ALONE,
        "train.optimizer": "adamw",
        "checkpoint.load": f"{tmp_path}/checkpoints/last.pt",
    }
    with pytest.raises(ConfigError, match="trained with sgd"):
        alone(BASE.with_changes(other), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"data.train_limit": 100}, {"train.batch_size": 64, "train.drop_last": True}],
    ids=["fewer samples", "larger batches, no smaller one"],
)
def test_a_resumption_that_leaves_nothing_of_its_epoch_begins_the_next(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    config = BASE.with_changes(ALONE)
    alone(config.with_changes({"train.max_steps": 4}), tmp_path)  # 128 samples of 150
    last = tmp_path / "checkpoints" / "last.pt"
    resumed = alone(config.with_changes({**changes, "checkpoint.load": str(last)}), tmp_path)
    assert resumed.windows[-1].step == 4 + 3 * (150 // 64 if "train.batch_size" in changes else 4)


@pytest.mark.parametrize(("step", "evaluated"), [(3, []), (4, [4])])
def test_a_stop_at_the_last_step_comes_too_late(
    step: int, evaluated: list[int], tmp_path: Path
) -> None:
    reporter = Stopped(after=step)
    config = BASE.with_changes({**ALONE, "train.max_steps": 4})
    outcome = alone(config, tmp_path, reporter)
    assert [event.step for event in outcome.evaluations] == evaluated
    assert [event.stopped for event in reporter.of(Finished)] == [step < 4]


def test_the_direction_of_the_best_is_that_of_its_metric(tmp_path: Path) -> None:
    config = BASE.with_changes({**ALONE, "checkpoint.best": "loss", "train.lr": 0.1})
    outcome = alone(config.with_changes({"checkpoint.keep": 9}), tmp_path)
    losses = {event.step: event.metrics["loss"].value for event in outcome.evaluations}
    best = (tmp_path / "checkpoints" / "best.pt").resolve()
    assert best.name == f"step-{min(losses, key=lambda step: losses[step]):08d}.pt"


def test_a_metric_whose_direction_nobody_knows_must_say_it(tmp_path: Path) -> None:
    config = BASE.with_changes({**ALONE, "checkpoint.best": "f1"})
    with pytest.raises(ConfigError, match='"max" or "min" is best for f1'):
        alone(config, tmp_path)


def test_the_best_of_the_written_checkpoints_is_linked(tmp_path: Path) -> None:
    # given evaluations more often than checkpoints
    rare = {**ALONE, "train.epochs": 5, "checkpoint.every_epochs": 2, "checkpoint.keep": 9}
    result = alone(BASE.with_changes(rare), tmp_path)
    # then best.pt is the best that was written, whatever was seen in between
    score = {e.step: e.metrics["top1"].total for e in result.evaluations}
    written = [int(path.stem[5:]) for path in (tmp_path / "checkpoints").glob("step-*.pt")]
    best = int((tmp_path / "checkpoints" / "best.pt").resolve().stem[5:])
    assert score[best] == max(score[step] for step in written)


def assert_identical(ours: Outcome, theirs: Outcome, what: str) -> None:
    for name, tensor in ours.model.items():
        assert torch.equal(tensor, theirs.model[name]), (what, name)
    state, other = ours.optimizer["state"], theirs.optimizer["state"]
    for index, buffers in state.items():
        for name, value in buffers.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, other[index][name]), (what, index, name)
    for a, b in zip(ours.evaluations[-1:], theirs.evaluations[-1:], strict=True):
        assert (a.metrics, a.step, a.epoch) == (b.metrics, b.step, b.epoch), what
