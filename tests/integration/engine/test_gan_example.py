"""The GAN of examples/gan trains both networks in turn, on any ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distrain.runners.config.presets import load_preset
from distrain.runners.distributed.process_group import World
from distrain.runners.records.state import RunState
from tests.integration.engine.ranks import run_case, run_on_ranks
from tests.support import ROOT

FOLDER = ROOT / "examples" / "gan"


def test_the_generator_learns_the_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    changes = {"launcher": "spawn", "train.threads": 1, "eval.every_epochs": 20}
    config = load_preset(str(FOLDER / "gan.toml"), changes)
    first, second = run_on_ranks(2, [(config, tmp_path)])[0]
    errors = [each.metrics["radius_error"].value for each in first.evaluations]
    assert errors[-1] is not None
    assert errors[-1] < 0.35
    assert len(first.optimizer["state"]) == 12  # both networks have been trained
    assert all(first.model[name].equal(second.model[name]) for name in first.model)


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("gan:Circle", "0.002, constant"),
        ("tests.integration.engine.tasks:Turning", "0.02, schedule of the task"),
        ("classification", "0.1, constant"),
    ],
)
def test_the_learning_rate_that_is_shown_is_that_of_the_task(
    task: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    changes = {"task.name": task, "train.max_steps": 1, "data.eval_limit": 10}
    config = load_preset("single", {**changes, "devices": "cpu:1", "train.lr": 0.1})
    config = config.with_changes({"train.schedule": "constant", "train.warmup_epochs": 0})
    run, _ = run_case(config, World(0, 0, 1, torch.device("cpu")), tmp_path)
    state = RunState(run_id="run", created=0.0, plan=run.plan, facts=run.facts())
    assert state.learning_rate(config) == shown
