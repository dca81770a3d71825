"""Images that each take a fixed time to read, whatever else the machine does."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import Dataset

from distrain.models.data import Data


class Slow(Dataset[Any]):
    def __init__(self, samples: int, seconds: float) -> None:
        self.samples, self.seconds = samples, seconds

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.seconds)
        return torch.full((1, 8, 8), index / self.samples), index % 10


def images(samples: int = 640, seconds: float = 0.05) -> Data:
    return Data(train=Slow(samples, seconds), eval=Slow(2, 0.0), classes=10, shape=(1, 8, 8))
