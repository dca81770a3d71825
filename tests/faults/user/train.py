"""A training script that knows nothing of distrain, apart from where it continues."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import held
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
LAST = Path(__file__).with_name("last.pt")
OPTIONS = held.HELD


def save(phases: held.Phases, model: nn.Module) -> None:
    if held.RANK == 0:
        with LAST.with_suffix(".partial").open("wb") as file:
            torch.save({"step": phases.steps, "model": model.state_dict()}, file)
        LAST.with_suffix(".partial").rename(LAST)
    if WORLD > 1:
        dist.barrier()


def main() -> None:
    if WORLD > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=OPTIONS["timeout_s"]))
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    workers = OPTIONS["workers"]
    loader = DataLoader(
        data,
        batch_size=8,
        num_workers=workers,
        persistent_workers=workers > 0,
        timeout=OPTIONS["timeout_s"] if workers else 0,
    )
    phases = held.Phases()
    model: nn.Module = nn.Linear(8, 1)
    if LAST.exists():
        model.load_state_dict(torch.load(LAST)["model"])
        print("continues from a checkpoint", flush=True)
    wrapped = DistributedDataParallel(model) if WORLD > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while phases.steps < OPTIONS["steps"]:
        for inputs, labels in loader:
            phases.step()
            optimizer.zero_grad()
            nn.functional.mse_loss(wrapped(inputs), labels).backward()
            optimizer.step()
            if phases.steps % OPTIONS["every"] == 0:
                with torch.no_grad():
                    phases.evaluate()
                    model(inputs)
                save(phases, model)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
