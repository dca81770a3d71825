"""A checkpoint has everything that training needs to continue."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Finished
from distrain.runners.protocol.reporter import NullReporter
from distrain.runners.system.devices import Device
from distrain.runners.training.loop import train
from distrain.runners.training.trainer import make_training
from tests.integration.engine.ranks import (
    Outcome,
    StoppingRecorder,
    run_alone,
    run_case,
    run_on_ranks,
)

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
CASES = {
    "ddp": {},
    "allreduce adam": {"strategy": "allreduce", "train.optimizer": "adam", "train.lr": 0.001},
    "step schedule": {"train.schedule": "step", "train.step_epochs": 1.0},
    "powerSGD": {"ddp.comm_hook": "powerSGD", "ddp.powersgd_start": 3},
    "average": {"train.ema": 0.5, "strategy": "allreduce"},
    "equal average": {
        "train.swa_share": 0.25,
        "train.swa_every_steps": 2,
        "model.name": "tests.integration.engine.tasks:normed",
    },
    "loader workers": {"data.workers": 2},
    "augmented": {"data.name": "tests.integration.engine.tasks:jittered_digits"},
    "optimizers in turn": {"task.name": "tests.integration.engine.tasks:Turning"},
    "own factory": {
        "train.optimizer": "torch.optim:RMSprop",
        "train.optimizer_args": {"momentum": 0.5},
        "train.lr": 0.001,
    },
}
TASKS = "tests.integration.engine.tasks"
ALONE: dict[str, Any] = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}


def test_two_runs_of_two_epochs_equal_one_of_four_bit_for_bit(tmp_path: Path) -> None:
    cases = []
    for name, changes in CASES.items():
        config = BASE.with_changes(changes)
        first, second = tmp_path / name / "first", tmp_path / name / "second"
        cases += [
            (config, tmp_path / name / "straight"),
            (config.with_changes({"train.epochs": 2}), first),
            (config.with_changes({"checkpoint.load": f"{first}/checkpoints/last.pt"}), second),
        ]
    for _, folder in cases:
        folder.mkdir(parents=True)
    results = run_on_ranks(2, cases)
    for index, name in enumerate(CASES):
        straight, _, resumed = results[3 * index : 3 * index + 3]
        for rank in range(2):
            assert_identical(straight[rank], resumed[rank], name)


@pytest.mark.parametrize("stop_after", [7, 12])
def test_resuming_in_the_middle_of_an_epoch_is_exact(stop_after: int, tmp_path: Path) -> None:
    config = BASE.with_changes(ALONE)
    straight = run_alone(config, tmp_path)
    run_alone(config.with_changes({"train.max_steps": stop_after}), tmp_path)
    last = tmp_path / "checkpoints" / f"step-{stop_after:08d}.pt"
    resumed = run_alone(config.with_changes({"checkpoint.load": str(last)}), tmp_path)
    assert_identical(straight, resumed, f"stopped after {stop_after}")


@pytest.mark.parametrize(
    ("changes", "of_straight"),
    [
        ({}, {}),
        (
            {"train.ema": 0.5, "task.name": "tests.integration.engine.tasks:Thawing"},
            {"task.args": {"frozen": [1, 2, 11, 12]}},
        ),
        (
            {"train.swa_share": 0.8, "model.name": "tests.integration.engine.tasks:normed"},
            {},
        ),
    ],
    ids=[
        "plain",
        "average of a parameter that is frozen again in the resumed run",
        "equal average that has begun",
    ],
)
def test_a_stop_in_the_step_of_an_evaluation_leaves_it_to_the_resumed_run(
    changes: dict[str, Any], of_straight: dict[str, Any], tmp_path: Path
) -> None:
    config = BASE.with_changes({**ALONE, "train.epochs": 3, "checkpoint.best": "top1", **changes})
    straight = run_alone(config.with_changes(of_straight), tmp_path / "straight")
    stopped = run_alone(config, tmp_path / "stopped", StoppingRecorder(10))
    last = {"checkpoint.load": f"{tmp_path}/stopped/checkpoints/last.pt"}
    resumed = run_alone(config.with_changes(last), tmp_path / "resumed")
    found = [(each.step, each.metrics) for each in stopped.evaluations + resumed.evaluations]
    assert found == [(each.step, each.metrics) for each in straight.evaluations]
    assert [step for step, _ in found] == [5, 10, 15]


def test_fp16_resumes_with_its_loss_scale(tmp_path: Path) -> None:
    config = BASE.with_changes(
        {
            **ALONE,
            "precision": "fp16",
            "task.name": "tests.integration.engine.tasks:huge_loss",
            "train.clip_norm": 1.0,
        }
    )
    straight = run_alone(config, tmp_path / "straight")
    run_alone(config.with_changes({"train.epochs": 2}), tmp_path)
    load = {"checkpoint.load": f"{tmp_path}/checkpoints/last.pt"}
    assert_identical(straight, run_alone(config.with_changes(load), tmp_path), "fp16")


def test_another_strategy_and_world_size_continue_with_the_same_samples(tmp_path: Path) -> None:
    # given a network without dropout, so that training does not depend on the ranks
    config = BASE.with_changes({"model.name": "mlp", "train.deterministic": False})
    straight = run_alone(config.with_changes(ALONE), tmp_path)
    # when one process begins, and three ranks with the strategy allreduce continue, of which two
    # see an earlier checkpoint as the last one
    run_alone(config.with_changes({**ALONE, "train.max_steps": 7}), tmp_path)
    for rank in range(3):
        shutil.copytree(tmp_path / "checkpoints", tmp_path / str(rank), symlinks=True)
        if rank:
            (tmp_path / str(rank) / "last.pt").unlink()
            (tmp_path / str(rank) / "last.pt").symlink_to("step-00000005.pt")
    changes = {
        "strategy": "allreduce",
        "devices": "cpu:3",
        "task.name": "tests.integration.engine.tasks:in_own_folder",
        "task.args": {"folder": str(tmp_path)},
        "checkpoint.load": "last.pt",
    }
    resumed = run_on_ranks(3, [(config.with_changes(changes), tmp_path / "resumed")])[0][0]
    # then the weights are those of the uninterrupted run
    for name, tensor in straight.model.items():
        torch.testing.assert_close(resumed.model[name], tensor, rtol=1e-4, atol=2e-6, msg=name)


def test_newest_and_best_are_kept_without_partial_files(tmp_path: Path) -> None:
    run_alone(BASE.with_changes({**ALONE, "train.epochs": 6, "checkpoint.keep": 2}), tmp_path)
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
def test_a_bad_checkpoint_is_refused_with_a_sentence(
    content: Any, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ConfigError, match=sentence):
        run_alone(BASE.with_changes({**ALONE, "checkpoint.load": str(path)}), tmp_path)


def test_a_checkpoint_of_another_model_is_refused_with_a_sentence(tmp_path: Path) -> None:
    run_alone(BASE.with_changes({**ALONE, "train.max_steps": 1}), tmp_path)
    other = {**ALONE, "model.name": "mlp", "checkpoint.load": f"{tmp_path}/checkpoints/last.pt"}
    with pytest.raises(ConfigError, match="another model"):
        run_alone(BASE.with_changes(other), tmp_path)


@pytest.mark.parametrize("average", [{}, {"train.ema": 0.5}])
def test_buffers_that_forward_has_made_or_resized_are_restored(
    average: dict[str, Any], tmp_path: Path
) -> None:
    config = BASE.with_changes({**ALONE, "model.name": f"{TASKS}:caching", **average})
    whole = run_alone(config.with_changes({"train.max_steps": 4}), tmp_path / "whole")
    path = tmp_path
    for steps in (1, 2, 4):  # a resumed run is resumed, too
        changes = {"train.max_steps": steps}
        if steps > 1:
            changes["checkpoint.load"] = f"{path}/checkpoints/last.pt"
        path = tmp_path / f"{steps}"
        last = run_alone(config.with_changes(changes), path)
    assert_identical(whole, last, "caching")


def test_a_state_of_powersgd_for_other_buckets_is_named(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    world = World(0, 0, 1, torch.device("cpu"))
    config = BASE.with_changes({**CASES["powerSGD"], "train.max_steps": 5})
    try:
        run_case(config, world, tmp_path)
        load = {"checkpoint.load": f"{tmp_path}/checkpoints/last.pt", "train.max_steps": 6}
        for changes in ({"ddp.powersgd_rank": 4}, {"ddp.bucket_mb": 0.05}):
            plan = plan_here(config, [Device(kind="cpu", index=0)])
            (folder := tmp_path / str(changes)).mkdir()
            resumed = config.with_changes({**load, **changes})
            run = make_training(resumed, plan, world, NullReporter(), folder)
            with pytest.raises(RuntimeError) as raised:
                train(run)
            assert "continue with the ddp.bucket_mb" in str(run.strategy.explain(raised.value))
    finally:
        dist.destroy_process_group()


def test_powersgd_of_fp16_continues_in_fp32(tmp_path: Path) -> None:
    """It keeps what it has left out of gradients, which fp16 multiplies by the loss scale."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    world = World(0, 0, 1, torch.device("cpu"))
    config = BASE.with_changes({**CASES["powerSGD"], "train.max_steps": 6})
    load = {"checkpoint.load": f"{tmp_path}/fp16/checkpoints/last.pt"}
    try:
        straight, _ = run_case(config, world, tmp_path / "straight")
        fp16 = config.with_changes({"precision": "fp16", "train.max_steps": 5})
        run_case(fp16, world, tmp_path / "fp16")
        resumed, _ = run_case(config.with_changes(load), world, tmp_path / "resumed")
    finally:
        dist.destroy_process_group()
    for expected, found in zip(straight.parameters, resumed.parameters, strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.003)


def _first_rank(content: dict[str, Any]) -> dict[str, Any]:
    return content["ranks"][0]["random"]  # type: ignore[no-any-return]


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    # A fused kernel would write outside of the memory of this tensor.
    "momentum": (
        lambda saved: saved["optimizer"]["state"][0].update(momentum_buffer=torch.zeros(3)),
        "do not fit",
    ),
    "optimizer": (lambda saved: saved["optimizer"].clear(), "do not fit"),
    "negative": (lambda saved: saved.update(offset=-1), "offset is missing or wrong"),
    "huge": (lambda saved: saved.update(epoch=10**30), "epoch is missing or wrong"),
    "truth": (lambda saved: saved.update(step=True), "step is missing or wrong"),
    "best": (lambda saved: saved.update(best="x"), "best is missing or wrong"),
    "fewer ranks": (lambda saved: saved.update(ranks=[]), "ranks is missing or wrong"),
    "rank": (lambda saved: saved.update(ranks=[5]), "ranks is missing or wrong"),
    "random": (lambda saved: _first_rank(saved).pop("torch"), "its random state"),
    # numpy would read outside of its memory.
    "position": (
        lambda saved: _first_rank(saved)["numpy"].__setitem__(2, 10**9),
        "its random state",
    ),
    "config": (lambda saved: saved.update(config="\x1b[31m"), "its config cannot be read"),
    "format": (lambda saved: saved.update(format=torch.ones(2)), "not a checkpoint of distrain"),
    "newer": (lambda saved: saved.update(format=2), "was written by a newer version of distrain"),
}


def test_a_checkpoint_with_wrong_values_is_refused_with_a_sentence(tmp_path: Path) -> None:
    mlp = BASE.with_changes({**ALONE, "model.name": "mlp", "train.max_steps": 1})
    run_alone(mlp, tmp_path)
    path = tmp_path / "damaged.pt"
    for name, (damage, sentence) in DAMAGES.items():
        content = torch.load(tmp_path / "checkpoints/last.pt", weights_only=True)
        damage(content)
        torch.save(content, path)
        with pytest.raises(ConfigError, match=sentence):
            run_alone(mlp.with_changes({"checkpoint.load": str(path)}), tmp_path / name)


def test_a_resumed_optimizer_has_the_options_of_the_new_config(tmp_path: Path) -> None:
    run_alone(BASE.with_changes({**ALONE, "train.max_steps": 2}), tmp_path)
    changed = {
        **ALONE,
        "train.max_steps": 3,
        "train.momentum": 0.5,
        "train.weight_decay": 0.1,
        "checkpoint.load": f"{tmp_path}/checkpoints/last.pt",
    }
    (group,) = run_alone(BASE.with_changes(changed), tmp_path).optimizer["param_groups"]
    assert (group["momentum"], group["weight_decay"]) == (0.5, 0.1)


def test_a_resumed_optimizer_of_a_factory_has_the_options_of_the_new_config(tmp_path: Path) -> None:
    own = {**ALONE, "train.optimizer": "torch.optim:RMSprop", "train.lr": 0.001}
    run_alone(BASE.with_changes({**own, "train.max_steps": 2}), tmp_path)
    changed = {
        **own,
        "train.optimizer_args": {"alpha": 0.5},
        "train.max_steps": 3,
        "checkpoint.load": f"{tmp_path}/checkpoints/last.pt",
    }
    (group,) = run_alone(BASE.with_changes(changed), tmp_path).optimizer["param_groups"]
    assert group["alpha"] == 0.5


def test_another_optimizer_is_refused_with_a_sentence(tmp_path: Path) -> None:
    run_alone(BASE.with_changes({**ALONE, "train.max_steps": 1}), tmp_path)
    other = {
        **ALONE,
        "train.optimizer": "adamw",
        "checkpoint.load": f"{tmp_path}/checkpoints/last.pt",
    }
    with pytest.raises(ConfigError, match="trained with sgd"):
        run_alone(BASE.with_changes(other), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"data.train_limit": 100}, {"train.batch_size": 64, "train.drop_last": True}],
    ids=["fewer samples", "larger batches, no smaller one"],
)
def test_a_resumption_without_remaining_steps_in_its_epoch_begins_the_next(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    config = BASE.with_changes(ALONE)
    run_alone(config.with_changes({"train.max_steps": 4}), tmp_path)  # 128 samples of 150
    last = tmp_path / "checkpoints" / "last.pt"
    resumed = run_alone(config.with_changes({**changes, "checkpoint.load": str(last)}), tmp_path)
    assert resumed.windows[-1].step == 4 + 3 * (150 // 64 if "train.batch_size" in changes else 4)


@pytest.mark.parametrize(("step", "evaluated"), [(3, []), (4, [4])])
def test_a_stop_at_the_last_step_has_no_effect(
    step: int, evaluated: list[int], tmp_path: Path
) -> None:
    reporter = StoppingRecorder(after=step)
    config = BASE.with_changes({**ALONE, "train.max_steps": 4})
    outcome = run_alone(config, tmp_path, reporter)
    assert [event.step for event in outcome.evaluations] == evaluated
    assert [event.stopped for event in reporter.events_of(Finished)] == [step < 4]


def test_the_direction_of_the_best_follows_from_its_metric(tmp_path: Path) -> None:
    config = BASE.with_changes({**ALONE, "checkpoint.best": "loss", "train.lr": 0.1})
    outcome = run_alone(config.with_changes({"checkpoint.keep": 9}), tmp_path)
    losses = {event.step: event.metrics["loss"].value for event in outcome.evaluations}
    best = (tmp_path / "checkpoints" / "best.pt").resolve()
    assert best.name == f"step-{min(losses, key=lambda step: losses[step]):08d}.pt"


def test_a_metric_of_unknown_direction_needs_best_is(tmp_path: Path) -> None:
    config = BASE.with_changes({**ALONE, "checkpoint.best": "f1"})
    with pytest.raises(ConfigError, match='whether "max" or "min" is best for f1'):
        run_alone(config, tmp_path)


def test_the_best_of_the_written_checkpoints_is_linked(tmp_path: Path) -> None:
    # given evaluations more often than checkpoints
    rare = {**ALONE, "train.epochs": 5, "checkpoint.every_epochs": 2, "checkpoint.keep": 9}
    result = run_alone(BASE.with_changes(rare), tmp_path)
    # then best.pt is the best of the written ones, even if there was a better one in between
    score = {e.step: e.metrics["top1"].total for e in result.evaluations}
    written = [int(path.stem[5:]) for path in (tmp_path / "checkpoints").glob("step-*.pt")]
    best = int((tmp_path / "checkpoints" / "best.pt").resolve().stem[5:])
    assert score[best] == max(score[step] for step in written)


def assert_identical(first: Outcome, second: Outcome, what: str) -> None:
    for name, tensor in first.model.items():
        assert torch.equal(tensor, second.model[name]), (what, name)
    other = second.optimizer["state"]
    for index, buffers in first.optimizer["state"].items():
        for name, value in buffers.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, other[index][name]), (what, index, name)
    for a, b in zip(first.evaluations[-1:], second.evaluations[-1:], strict=True):
        assert (a.metrics, a.step, a.epoch) == (b.metrics, b.step, b.epoch), what
