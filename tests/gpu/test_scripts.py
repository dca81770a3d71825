"""Scripts that train on a GPU are recorded as they are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from distrain import RunConfig, launch
from tests.gpu.conftest import LONGEST_S

BASE = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
torch.cuda.set_device(device)
torch.manual_seed(0)
x = torch.randn(2048, 64)
data = TensorDataset(x, (x[:, :4] * x[:, 4:8]).argmax(1))
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 4)).to(device)
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(30):
    for inputs, labels in DataLoader(data, batch_size=64, shuffle=True, pin_memory=True):
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        distrain.log({"loss": loss})
"""
DDP = """
import torch.distributed as dist
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
"""
AMP = """
scaler = torch.amp.GradScaler()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)
for epoch in range(30):
    for inputs, labels in DataLoader(data, batch_size=64, shuffle=True):
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        distrain.log({"loss": loss})
"""
SCRIPTS = {
    "plain": LOOP,
    "DDP": DDP + LOOP + "dist.destroy_process_group()\n",
    "GradScaler": AMP,
    "DataParallel": "model = nn.DataParallel(model)\n" + LOOP,
    "compiled": "model = torch.compile(model)\n" + LOOP,
    "own stream": "torch.cuda.set_stream(torch.cuda.Stream())\n" + LOOP,
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_on_the_gpu_is_recorded(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import distrain\n{BASE}{SCRIPTS[kind]}")
    changes: dict[str, Any] = {"script": {"path": str(script)}, "report": {"sample_s": 0.2}}
    if kind == "DDP":
        changes |= {"devices": [0], "launcher": "torchrun"}
    run = launch(RunConfig.from_dict(changes), runs_dir=tmp_path / "runs")
    summary = run.wait(LONGEST_S)
    log = (run.record.dir / "logs" / "rank-0.log").read_text()
    assert summary["status"] == "completed", log
    # 30 epochs of 2,048 samples in batches of 64
    assert (summary["steps"], summary["samples"]) == (960, 61_440)
    assert 0 < summary["metrics"]["loss"] < 1.4
    assert math.isfinite(summary["samples_per_s"])
