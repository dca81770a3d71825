"""What fails on a GPU is named, what hangs there is seen, and the GPU is free afterwards."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from distrain import Run, RunConfig, launch
from distrain.runners.config.presets import load_preset
from distrain.runners.records.stacks import read_saved_stacks
from distrain.runners.records.stall import RankPhase
from distrain.runners.system.telemetry import GpuSampler
from tests.gpu.conftest import ALONE, LONGEST_S, SHARED
from tests.support.runs import wait_until

HERE = Path(__file__).parent
HANGING = """
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    loss = model(torch.randn(4, 8, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 50:
        torch.cuda._sleep(1 << 42)
    print(loss.item(), flush=True)
"""


def start(folder: Path, kind: str, **changes: Any) -> Run:
    base = {"code_dir": str(HERE), "task.name": "faulty_on_gpu:make", "task.args": {"kind": kind}}
    preset = load_preset("ddp", {"train.epochs": 100, **base, **changes})
    return launch(preset, runs_dir=folder)


def assert_gpu_is_free_of(pids: set[int]) -> None:
    with GpuSampler() as sampler:
        wait_until(
            lambda: not pids & {pid for one in sampler.sample() for pid in one.processes},
            LONGEST_S,
        )


@pytest.mark.parametrize("how", [ALONE, {"devices": [0]}], ids=["alone", "nccl"])
@pytest.mark.parametrize(
    ("kind", "types", "words"),
    [
        ("memory", {"OutOfMemoryError"}, "out of memory"),
        ("label", {"AcceleratorError", "RuntimeError"}, "device-side assert"),
    ],
)
def test_an_error_of_the_gpu_is_the_reason(
    kind: str, types: set[str], words: str, how: dict[str, Any], tmp_path: Path
) -> None:
    run = start(tmp_path, kind, **how)
    summary = run.wait(LONGEST_S)
    error = run.record.state.error
    assert summary["status"] == "failed"
    assert error is not None
    assert (error.rank, error.type in types) == (0, True), error
    assert words in error.message
    assert "\n" not in run.reason
    assert summary["steps"] >= 12


def test_a_rank_without_memory_is_named_not_the_one_that_waits(tmp_path: Path) -> None:
    run = start(tmp_path, "memory", **SHARED, **{"task.args": {"kind": "memory", "rank": 1}})
    run.wait(LONGEST_S)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (1, "OutOfMemoryError")


@pytest.mark.parametrize("how", [ALONE, {"devices": [0]}], ids=["alone", "nccl"])
def test_a_kernel_that_hangs_is_a_stall_and_the_run_can_be_stopped(
    how: dict[str, Any], tmp_path: Path
) -> None:
    run = start(tmp_path, "hang", **how)
    wait_until(lambda: run.record.state.current_stall or not run.is_live, LONGEST_S)
    stall = run.record.state.current_stall
    assert stall is not None
    (position,) = stall.positions
    assert (position.rank, position.phase) == (0, RankPhase.GPU)
    pids = {rank.pid for rank in run.record.ranks()}
    assert "train_epoch" in read_saved_stacks(run.dir)
    run.stop(now=True)
    assert run.wait(LONGEST_S)["status"] == "stopped"
    assert_gpu_is_free_of(pids)


def test_a_kernel_of_a_script_that_hangs_is_a_stall(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGING)
    config = RunConfig.from_dict({"script": {"path": str(script)}})
    run = launch(config, runs_dir=tmp_path / "runs")
    wait_until(lambda: run.record.state.current_stall or not run.is_live, LONGEST_S)
    stall = run.record.state.current_stall
    assert stall is not None
    assert "train.py:13 in <module>" in stall.positions[0].place
    run.stop(now=True)
    run.wait(LONGEST_S)


def test_a_killed_run_frees_the_gpu_and_continues(tmp_path: Path) -> None:
    run = start(tmp_path, "", **{"train.epochs": 20_000, "checkpoint.every_epochs": 5, **ALONE})
    wait_until((run.dir / "checkpoints" / "last.pt").exists, LONGEST_S)
    pids = {rank.pid for rank in run.record.ranks()}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert run.wait(LONGEST_S)["status"] == "failed"
    assert_gpu_is_free_of(pids)
    steps = run.record.summary()["steps"]
    again = run.resume({"train.max_steps": steps + 50})
    assert again.wait(LONGEST_S)["status"] == "completed"
    assert again.record.summary()["steps"] == steps + 50
