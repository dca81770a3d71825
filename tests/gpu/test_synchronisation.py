"""Training does not wait for the GPU: it synchronises once per run, not once per step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from distrain.models.build import build_task
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.protocol.reporter import NullReporter
from distrain.runners.system.devices import Device
from distrain.runners.training.loop import train
from distrain.runners.training.trainer import Training


def synchronisations(precision: str, steps: int, device: torch.device, folder: Path) -> int:
    """Return the calls of cudaStreamSynchronize and similar in a run of so many steps."""
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
    plan = plan_here(config, [Device(kind="cuda", index=0, uuid="GPU-0")])
    task = build_task(config.task, config.model, config.data, device=device)
    run = Training(config, plan, World(0, 0, 1, device), task, NullReporter(), folder)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        train(run)
    return sum("Synchronize" in event.name for event in profiled.events() or ())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_more_steps_do_not_synchronise_more_often(
    precision: str, device: torch.device, tmp_path: Path
) -> None:
    synchronisations(precision, 5, device, tmp_path)  # compiles and allocates what is needed once
    few, many = (synchronisations(precision, steps, device, tmp_path) for steps in (20, 80))
    assert many == few > 0
