"""A user's own script that uses Horovod."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import Run, RunConfig, launch
from tests.support.programs import SAVES
from tests.support.runs import wait_until

SUM = """
import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum)
print("sum", total.item(), flush=True)
"""

# Each of two ranks has 20 of 40 samples: 5 batches of 4 in each of 2 epochs.
TRAINS = """
import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
data = TensorDataset(torch.randn(40, 2), torch.randn(40, 1))
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@pytest.fixture
def launch_script(user_folder: Path) -> Callable[..., Run]:
    def launch_script(program: str, **horovod: str) -> Run:
        (user_folder / "train.py").write_text(program)
        script = {"script": {"path": "train.py"}, "launcher": "horovodrun", "devices": "cpu:2"}
        return launch(RunConfig.from_dict({**script, "horovod": horovod}))

    return launch_script


def outputs(run: Run) -> list[str]:
    return [path.read_text() for path in sorted((run.dir / "logs").glob("rank-*.log"))]


@pytest.mark.parametrize("via", ["distrain", "horovodrun"])
def test_a_script_with_horovod_runs(via: str, launch_script: Callable[..., Run]) -> None:
    run = launch_script(SUM, via=via)
    assert run.wait(120)["status"] == "completed", run.reason
    assert ["sum 3.0" in output for output in outputs(run)] == [True, True]


def test_steps_and_samples_of_its_training_are_observed(launch_script: Callable[..., Run]) -> None:
    found = launch_script(TRAINS).wait(120)
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 10, 80)
    assert found["sources"]["steps"] == "optimizer steps of SGD"


def test_a_stop_interrupts_its_ranks(launch_script: Callable[..., Run]) -> None:
    run = launch_script(SAVES)
    wait_until(lambda: outputs(run) == ["ready\n", "ready\n"])
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert ["saved" in output for output in outputs(run)] == [True, True]
