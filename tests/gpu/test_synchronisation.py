"""Training does not wait for the GPU: what synchronises does so once a run, not once a step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from models.build import build_task
from runners.config import RunConfig
from runners.devices import Device
from runners.loop import train
from runners.plan import make_plan
from runners.reporter import NullReporter
from runners.training import Training
from runners.world import World


def synchronisations(precision: str, steps: int, device: torch.device, folder: Path) -> int:
    """Calls of cudaStreamSynchronize and its like in a run of so many steps."""
    config = RunConfig().with_changes(
        {
            "strategy": "single",
            "launcher": "inline",
            "precision": precision,
            "train.max_steps": steps,
            "train.clip_norm": 1.0,
            "report.window_s": 1000.0,
            "data.name": "synthetic",
            "data.args": {"on_device": True, "shape": [3, 8, 8], "samples": 64 * 200},
            "train.batch_size": 64,
            "eval.every_epochs": 0,
            "checkpoint.keep": 0,
        }
    )
    plan = make_plan(config, [Device(kind="cuda", index=0, uuid="GPU-0")])
    task = build_task(config.task, config.model, config.data, device=device)
    run = Training(config, plan, World(0, 0, 1, device), task, NullReporter(), folder)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        train(run)
    return sum("Synchronize" in event.name for event in seen.events() or ())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_more_steps_synchronise_no_more_often(
    precision: str, device: torch.device, tmp_path: Path
) -> None:
    synchronisations(precision, 5, device, tmp_path)  # what is compiled and allocated once
    few, many = (synchronisations(precision, steps, device, tmp_path) for steps in (20, 80))
    assert many == few > 0
