"""The script of `benchmarks.peers`: a bare loop, or with TraceML's mark around each step.

`python peer_loop.py SECONDS FILE [--traceml]` writes the seconds per step, the lower quartile of
blocks. It imports nothing of distrain, because it also runs in another environment.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import quantiles

import torch
from torch import nn

BLOCK = 50  # steps
WARMUP = 20  # blocks
LEAST = 4  # blocks that are measured


class Endless(torch.utils.data.Dataset):
    """The same batch as often as it is asked for."""

    def __init__(self):
        self.batch = torch.randn(64, 256), torch.randint(10, (64,))

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        return self.batch


def main():
    seconds, out = float(sys.argv[1]), Path(sys.argv[2])
    step_of = None
    if "--traceml" in sys.argv:
        import traceml_ai as traceml

        step_of = traceml.trace_step
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    blocks = []
    began = block_began = time.perf_counter()
    for count, (x, y) in enumerate(torch.utils.data.DataLoader(Endless(), batch_size=None), 1):
        with step_of(model) if step_of else nullcontext():
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if count % BLOCK == 0:
            now = time.perf_counter()
            blocks.append((now - block_began) / BLOCK)
            if now - began > seconds and len(blocks) >= WARMUP + LEAST:
                break
            block_began = time.perf_counter()
    out.write_text(json.dumps(quantiles(blocks[WARMUP:])[0]))


if __name__ == "__main__":
    main()
