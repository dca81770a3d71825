"""What a task logs, and the norm of the gradients, are curves of each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Logged, Window
from tests.integration.engine.ranks import run_alone
from tests.support.reporters import RecordingReporter


def test_values_of_a_task_and_the_norm_of_clipped_gradients_are_sent_with_the_windows(
    tmp_path: Path,
) -> None:
    changes = {
        "strategy": "single",
        "launcher": "inline",
        "devices": "cpu:1",
        "train.epochs": 2,
        "train.clip_norm": 0.5,
        "report.window_s": 1e-6,
        "data.train_limit": 300,
        "task.name": "tests.integration.engine.tasks:Logging",
    }
    recorder = RecordingReporter()
    run_alone(RunConfig().with_changes(changes), tmp_path, recorder)
    windows = {window.step: window for window in recorder.events_of(Window)}
    logged: dict[str, dict[int, float | None]] = {"twice": {}, "grad_norm": {}}
    for event in recorder.events_of(Logged):
        for name, stats in event.values.items():
            assert stats.count == windows[event.step].steps
            logged[name][event.step] = stats.total
    assert logged["twice"].keys() == logged["grad_norm"].keys() == windows.keys()
    for step, window in windows.items():
        if window.steps == 1:
            assert window.loss_sum is not None
            mean = window.loss_sum / window.samples
            assert logged["twice"][step] == pytest.approx(2 * mean, rel=1e-5)
        norm = logged["grad_norm"][step]
        assert norm is not None
        assert norm > 0
