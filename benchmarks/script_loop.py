"""The script of `benchmarks.script`: trains in turns with and without distrain's calls.

`python -m benchmarks.script_loop CASE SECONDS FILE` writes the seconds per step of each turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

import distrain

TURN_S = 0.3
TINY = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
CNN = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
CASES = {"tiny": (TINY, (64, 256)), "cnn": (CNN, (16, 1, 28, 28))}


def main() -> None:
    case, seconds, out = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    model, shape = CASES[case]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = (torch.randn(shape), torch.randint(10, shape[:1]))

    def turn(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], logs: bool) -> float:
        began = time.perf_counter()
        count = 0
        for x, y in batches:
            count += 1
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if logs:
                distrain.log({"loss": loss})
            if time.perf_counter() - began > TURN_S:
                break
        return (time.perf_counter() - began) / count

    endless = [batch] * 10**6
    turn(endless, logs=False)
    turns: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        bare = turn(endless, logs=False)
        turns.append((bare, turn(distrain.track(endless), logs=True)))
    out.write_text(json.dumps(turns))


if __name__ == "__main__":
    main()
