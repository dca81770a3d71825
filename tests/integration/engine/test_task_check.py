"""The evaluation before training changes nothing of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distrain.runners.config.schema import RunConfig
from distrain.runners.training import loop
from tests.integration.engine.ranks import run_alone


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("task", ["Restless", "Remembering", "Scripted", "Finishing", "Scored"])
def test_a_run_is_the_same_to_the_bit_with_the_check_and_without(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        "strategy": "single",
        "launcher": "inline",
        "devices": "cpu:1",
        "train.epochs": 2,
        "train.threads": 1,
        "data.train_limit": 512,
        "eval.batch_size": 64,
        "report.window_s": 60,  # so windows do not depend on the speed of the machine
        "task.name": f"tests.integration.engine.tasks:{task}",
    }
    config = RunConfig().with_changes(changes)
    checked = run_alone(config, tmp_path / "checked")
    monkeypatch.setattr(loop, "check_task", lambda run: None)
    plain = run_alone(config, tmp_path / "plain")
    assert checked.model.keys() == plain.model.keys()
    for name, tensor in plain.model.items():
        assert torch.equal(checked.model[name], tensor), name
    values = [[each.metrics for each in outcome.evaluations] for outcome in (checked, plain)]
    assert values[0] == values[1]
    assert [each.loss_sum for each in checked.windows] == [each.loss_sum for each in plain.windows]
