"""The script of `benchmarks.script`: trains in turns bare, observed, and with distrain's calls.

`python -m benchmarks.script_loop CASE SECONDS FILE` writes the seconds per step of each turn: the
mean and the lowest tenth.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import mean, median, quantiles

import torch
from torch import nn
from torch.utils.data.dataloader import _BaseDataLoaderIter

import distrain
from distrain.runners.instrumentation.automatic import hooked

TURN_S = 0.5
LONGEST = 3  # times the median


def mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 10))


CNN = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
CASES = {
    "tiny": (mlp(512), (64, 256)),
    "cnn": (CNN, (16, 1, 28, 28)),
    "least": (mlp(64), (16, 256)),
}


Turn = tuple[float, float]  # the mean and the lowest tenth of the seconds per step
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


class Endless(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The same batch as often as it is asked for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._batch = (torch.randn(shape), torch.randint(10, shape[:1]))

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._batch


def undisturbed_mean(steps: list[float]) -> float:
    """Return the mean without steps that took much longer than most: the process was interrupted.

    A step that ends a window is not among them.
    """
    longest = LONGEST * median(steps)
    return mean(step for step in steps if step < longest)


@contextmanager
def without_hooks() -> Iterator[None]:
    """Take the hooks out of torch, as if the script were not run by distrain."""
    optimizers = import_module("torch.optim.optimizer")  # hidden by a name in torch.optim
    before = dict(optimizers._global_optimizer_pre_hooks)
    after = dict(optimizers._global_optimizer_post_hooks)
    backward, next_batch = torch.autograd.backward, _BaseDataLoaderIter.__next__
    optimizers._global_optimizer_pre_hooks.clear()
    optimizers._global_optimizer_post_hooks.clear()
    torch.autograd.backward = backward.__wrapped__
    _BaseDataLoaderIter.__next__ = next_batch.__wrapped__
    yield
    torch.autograd.backward = backward
    _BaseDataLoaderIter.__next__ = next_batch
    optimizers._global_optimizer_pre_hooks.update(before)
    optimizers._global_optimizer_post_hooks.update(after)


def main() -> None:
    case, seconds, out = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    model, shape = CASES[case]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Endless(shape), batch_size=None)

    def turn(batches: Batches, logs: bool = False) -> Turn:
        began = last = time.perf_counter()
        steps = []
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if logs:
                distrain.log({"loss": loss})
            now = time.perf_counter()
            steps.append(now - last)
            last = now
            if now - began > TURN_S:
                break
        return undisturbed_mean(steps), quantiles(steps, n=10)[0]

    def bare() -> Turn:
        with without_hooks():
            return turn(loader)

    def automatic() -> Turn:
        hooked.session.tracks = False
        return turn(loader)

    bare()
    turns: list[tuple[Turn, Turn, Turn, Turn]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        again = bare()
        found = bare(), automatic(), turn(distrain.track(loader), logs=True)
        turns.append((again, *found))
    out.write_text(json.dumps(turns))


if __name__ == "__main__":
    main()
