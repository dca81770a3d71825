"""The statistics of BatchNorm that belong to equally averaged weights (`train.swa_share`)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch.optim.swa_utils import update_bn

from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.protocol.events import Notice, Phase, Window
from distrain.runners.training import batch_statistics
from distrain.runners.training.loading import epoch_permutation
from tests.integration.engine.ranks import StoppingRecorder, run_alone, run_case

BASE = RunConfig().with_changes(
    {
        "strategy": "single",
        "launcher": "inline",
        "devices": "cpu:1",
        "model.name": "tests.integration.engine.tasks:normed",
        "model.args": {},
        "train.epochs": 3,
        "train.batch_size": 32,
        "train.lr": 0.3,
        "data.train_limit": 150,
        "data.eval_limit": 50,
    }
)
AVERAGED = {"train.swa_share": 0.5}


def test_they_are_those_that_update_bn_of_torch_computes(tmp_path: Path) -> None:
    run, _ = run_case(BASE.with_changes(AVERAGED), World(0, 0, 1, torch.device("cpu")), tmp_path)
    assert run.average
    expected = copy.deepcopy(run.average.model)
    for module in expected.modules():
        module.train(not isinstance(module, torch.nn.Dropout))  # it comes after BatchNorm
    samples = [run.task.train[index] for index in epoch_permutation(0, 0, 150)[:128]]
    images = torch.stack([image for image, _ in samples])
    update_bn(images.split(32), expected)
    found = dict(run.average.model.named_buffers())
    for name, buffer in expected.named_buffers():
        if "running" in name:
            torch.testing.assert_close(found[name], buffer)
            assert not torch.equal(buffer, dict(run.model.named_buffers())[name])
        else:
            assert torch.equal(found[name], dict(run.model.named_buffers())[name])
    saved = torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)
    assert torch.equal(saved["swa"]["model"]["2.running_mean"], found["2.running_mean"])


def test_their_batches_are_signs_of_progress_in_a_phase_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_statistics, "REPORT_S", -1.0)  # each batch is slow
    _, recorder = run_case(
        BASE.with_changes(AVERAGED), World(0, 0, 1, torch.device("cpu")), tmp_path
    )
    phases = [event.phase for event in recorder.events_of(Phase)]
    without = ["training", "evaluating", "saving"]
    averaged = ["training", *["averaging"] * (128 // 32), "evaluating", "saving"]
    assert phases == [*without, *averaged, *averaged]


def test_their_forward_passes_change_neither_training_nor_task(tmp_path: Path) -> None:
    config = BASE.with_changes({"task.name": "tests.integration.engine.tasks:Drifting"})
    plain = run_alone(config, tmp_path / "plain")
    averaged = run_alone(config.with_changes(AVERAGED), tmp_path / "averaged")
    for name, value in plain.model.items():
        assert torch.equal(averaged.model[name], value)
    assert _logged(averaged.windows) == _logged(plain.windows)
    assert plain.evaluations[0].metrics == averaged.evaluations[0].metrics
    assert plain.evaluations[-1].metrics != averaged.evaluations[-1].metrics


def _logged(windows: list[Window]) -> float:
    return sum(window.loss_sum or 0.0 for window in windows)


def test_a_run_that_ends_before_the_average_begins_says_so(tmp_path: Path) -> None:
    for after, notices in ((3, 1), (9, 0)):
        reporter = StoppingRecorder(after)
        run_alone(BASE.with_changes(AVERAGED), tmp_path, reporter)
        found = [each.text for each in reporter.events_of(Notice)]
        assert len(found) == notices
        if found:
            assert (
                "ended after step 3, and the average of the weights begins with step 8" in found[0]
            )
        (tmp_path / "checkpoints" / "last.pt").unlink()
