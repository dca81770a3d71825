"""A task with artificial step times: a pace for all ranks, and a delay for one rank and phase."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.classification import Classification
from distrain.models.data import Data


def classification(
    model: nn.Module,
    data: Data,
    pace: float = 0.0,
    rank: int = -1,
    phase: str = "",
    delay: float = 0.0,
) -> Delayed:
    """Return a task whose steps sleep `pace` seconds, a third of it in forward.

    On `rank`, `phase` ("data", "forward" or "backward") takes `delay` seconds longer.
    """
    mine = int(os.environ.get("RANK", "0")) == rank
    return Delayed(model, data, pace, {phase: delay} if mine else {})


class Delayed(Classification):
    def __init__(self, model: nn.Module, data: Data, pace: float, delays: dict[str, float]) -> None:
        super().__init__(model, data)
        self.train = _Waiting(data.train, delays.get("data", 0.0))
        self._forward = pace / 3 + delays.get("forward", 0.0)
        self._backward = 2 * pace / 3 + delays.get("backward", 0.0)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        time.sleep(self._forward)
        loss = super().loss(model, batch)
        loss.register_hook(lambda _: time.sleep(self._backward))
        return loss


class _Waiting(Dataset[Any]):
    def __init__(self, samples: Any, seconds: float) -> None:
        self._samples, self._seconds = samples, seconds

    def __len__(self) -> int:
        return len(self._samples)

    def __getitems__(self, keys: Sequence[Any]) -> Any:
        time.sleep(self._seconds)
        return self._samples.__getitems__(keys)
