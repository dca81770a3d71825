"""Training ends before its last step: without progress, or when its time is over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import ConfigError, Run
from distrain.runners.verification.cases import verify

Start = Callable[..., Run]


def test_training_without_progress_is_complete_once_patience_is_exhausted(start: Start) -> None:
    # given a rate so small that the weights cannot change, so no evaluation is better
    run = start(devices="cpu:2", train__epochs=20, train__lr=1e-30, train__patience=3)
    summary = run.wait(120)
    # then the first evaluation and three others are made on all ranks
    assert summary["status"] == "completed"
    assert run.record.state.reason == "no better top1 in 3 evaluations (train.patience)"
    assert [each.epoch for each in run.record.evaluations()] == [1, 2, 3, 4]
    assert summary["steps"] == 4 * 12
    # and a resumed run has patience again
    resumed = run.resume()
    assert resumed.wait(120)["steps"] == 7 * 12


def test_patience_lasts_as_long_as_the_metric_gets_better(start: Start) -> None:
    run = start(
        devices="cpu:1",
        strategy="single",
        launcher="inline",
        train__epochs=3,
        train__patience=1,
        train__lr=1e-4,
        train__momentum=0.0,
        checkpoint__best="loss",
        checkpoint__best_is="min",
    )
    assert run.wait(120)["steps"] == 3 * 12
    assert run.record.state.reason == "completed all steps"


def test_a_run_stops_with_a_checkpoint_when_its_time_is_over(start: Start) -> None:
    run = start(
        devices="cpu:2",
        train__epochs=10_000,
        train__max_time_s=2.0,
        eval__every_epochs=0,
        task__args={"pace": 0.01},
    )
    assert run.wait(120)["status"] == "stopped"
    assert run.record.state.reason.startswith("stopped at the limit of train.max_time_s after step")
    assert (run.record.dir / "checkpoints" / "last.pt").exists()


def test_a_task_without_evaluation_data_trains_and_is_verified(
    start: Start, user_folder: Path
) -> None:
    shutil.copy(Path(__file__).with_name("mistaken.py"), user_folder)
    task = {"task.name": "mistaken:make", "task.args": {"kind": "unevaluated"}}
    changes = {"launcher": "spawn", "devices": "cpu:2", "train.threads": 1}
    run = start(
        devices="cpu:2", train__epochs=2, **{k.replace(".", "__"): v for k, v in task.items()}
    )
    assert run.wait(120)["eval"] is None
    assert run.record.state.reason == "completed all steps"
    assert (run.record.dir / "checkpoints" / "last.pt").exists()
    (result,) = verify(["ddp"], changes=task | changes)
    assert not result.problem
    assert result.passed


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train__patience": 3, "eval__every_epochs": 0}, "train.patience"),
        ({"train__schedule": "onecycle", "train__warmup_epochs": 1.0}, "train.warmup_epochs"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict, key: str, start: Start) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match=key):
        start(**changes)
