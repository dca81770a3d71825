"""The built-in presets written by hand in plain PyTorch, without the engine.

    python -m benchmarks.by_hand ddp 5 found.json

trains the MLP on digits for 5 s after 2 s of warm-up, and writes the samples/s of all ranks.
`agreement` starts it with the launcher of each preset.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from distrain.models.data import collate
from distrain.models.datasets import digits
from distrain.models.networks import mlp

BATCH, WARM_S = 128, 2.0
ONE_PROCESS = ("single", "dp")


def train(way: str, seconds: float, out: str) -> None:
    """Train as one rank; rank 0 writes the rate."""
    alone = way in ONE_PROCESS
    if not alone:
        dist.init_process_group("gloo")
    rank, world = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    torch.manual_seed(0)
    data = digits()
    model: nn.Module = mlp(shape=(1, 8, 8), classes=10)
    if way == "dp":
        model = nn.DataParallel(model)
    elif way in ("ddp", "ddp-spawn", "amp"):
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    sampler: Any = DistributedSampler(data.train, world, rank)
    loader = DataLoader(data.train, BATCH // world, sampler=sampler, collate_fn=collate)
    samples, epoch, began, warm = 0, 0, time.perf_counter(), False
    while True:
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=way == "amp"):
                loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            if way == "allreduce":
                average(model, world)
            optimizer.step()
            optimizer.zero_grad()
            samples += len(labels)
        epoch += 1
        elapsed = together(time.perf_counter() - began, alone)
        if not warm and elapsed >= WARM_S:
            samples, began, warm = 0, time.perf_counter(), True
        elif warm and elapsed >= seconds:
            break
    if rank == 0:
        Path(out).write_text(json.dumps(world * samples / (time.perf_counter() - began)))
    if not alone:
        dist.destroy_process_group()


def average(model: nn.Module, world: int) -> None:
    """Average gradients as the tutorial does, but in one flat buffer."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def together(elapsed: float, alone: bool) -> float:
    """Return rank 0's time on all ranks, so that all end after the same epoch."""
    if alone:
        return elapsed
    shared = torch.tensor([elapsed])
    dist.broadcast(shared, src=0)
    return float(shared)


def spawned(rank: int, way: str, seconds: float, out: str) -> None:
    os.environ["RANK"] = str(rank)
    train(way, seconds, out)


if __name__ == "__main__":
    way, seconds, out = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    if way == "ddp-spawn":
        mp.spawn(spawned, (way, seconds, out), nprocs=int(os.environ["WORLD_SIZE"]))
    else:
        train(way, seconds, out)
