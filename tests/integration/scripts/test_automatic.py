"""Given a script that does not know distrain, when it runs, then its phases are recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain

from .conftest import Write, only_run, summary

NET = """
    from torch import nn

    def make():
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
"""

# 3 epochs of 100 samples: with two ranks 50 of each, in batches of 16, 16, 16 and 2.
TRAINS = """
    import os
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    from models.net import make

    data = TensorDataset(torch.randn(100, 8), torch.randn(100, 1))
    val = DataLoader(TensorDataset(*data[:40]), batch_size=16)
    model = make()
    sampler = None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        sampler = DistributedSampler(data)
        model = torch.nn.parallel.DistributedDataParallel(module=model)
    train = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for epoch in range(3):
        for x, y in train:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        for x, y in val:
            with torch.no_grad():
                model(x)
        scheduler.step()
    if sampler:
        dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def script(write: Write) -> None:
    write("train.py", TRAINS)
    write("models/net.py", NET)


def test_two_ranks_of_ddp_report_steps_samples_rate_and_phases(
    distrain: Distrain, runs_dir: Path
) -> None:
    found = summary(distrain, "--devices", "cpu:2", "train.py")
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 12, 300)
    assert found["sources"] == {
        "steps": "optimizer steps of SGD",
        "samples": "dimension 0 of the batches of DataLoader, or what its sampler draws",
        "lr": "parameter group 0 of SGD",
        "data": "DataLoader",
        "forward": "from a batch to backward()",
        "backward": "backward()",
        "comm": "DDP's own timing of one step in a hundred",
        "optimizer": "from backward() to the end of SGD.step()",
        "values": "nothing was logged by distrain.log(), TensorBoard, wandb, trackio or MLflow",
        "eval": "distrain.log_eval() was not called",
        "memory": "sampled by distrain, of the processes of each rank",
    }
    record = only_run(runs_dir)
    assert {rank: window.lr for rank, window in record.latest().items()} == {0: 0.125, 1: 0.125}
    shown = distrain("show", "latest").stdout
    assert "optimizer steps of SGD" in shown
    assert re.search(r"^  lr +0.125 \(last\)$", shown, re.MULTILINE)
    assert re.search(r"^  memory +\d+ MiB \(peak of one rank\)$", shown, re.MULTILINE)
    assert "does not report" not in shown


def test_a_mistake_in_the_data_is_shown_without_our_frames(
    write: Write, distrain: Distrain
) -> None:
    write(
        "broken.py",
        """
        from torch.utils.data import DataLoader
        class Data:
            def __len__(self): return 3
            def __getitem__(self, index): raise ValueError("a bad sample")
        for batch in DataLoader(Data()):
            pass
        """,
    )
    failed = distrain("run", "broken.py")
    assert failed.returncode == 1
    assert "ValueError: a bad sample" in failed.stderr
    assert "runners/instrumentation" not in failed.stderr


def test_nothing_is_observed_if_that_is_switched_off(distrain: Distrain, runs_dir: Path) -> None:
    found = summary(distrain, "--no-auto", "train.py")
    assert (found["status"], found["steps"], found["samples"]) == ("completed", None, None)
    sources = found["sources"].items()
    why = {reason for figure, reason in sources if figure not in ("eval", "memory")}
    assert why == {"not reported by the script; automatic hooks are off"}
    assert only_run(runs_dir).config.script.auto is False
    assert "script.auto  False" in distrain("show", "latest").stdout
