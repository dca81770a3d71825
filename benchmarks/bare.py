"""The script that `startup` compares with: DDP as in the tutorials, on the same data."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.first_step import tell_first_step
from distrain.models.data import collate
from distrain.models.datasets import digits
from distrain.models.networks import mlp


def main(steps: int) -> None:
    tell_first_step()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = digits()
    model = DistributedDataParallel(mlp(shape=(1, 8, 8), classes=10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    sampler: DistributedSampler[Any] = DistributedSampler(data.train)
    loader = DataLoader(
        data.train, batch_size=64, sampler=sampler, collate_fn=collate, drop_last=True
    )
    step = 0
    while step < steps:
        sampler.set_epoch(step)
        for inputs, labels in loader:
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
