"""The strategy `dp`: nn.DataParallel, one process that scatters each batch over all GPUs.

GPU 0 gathers the outputs, so the loss is computed once over the whole batch and is exact.
"""

from __future__ import annotations

from torch import nn

from distrain.runners.distributed.timing import Clock
from distrain.runners.strategies.base import Strategy


class DataParallel(Strategy):
    """nn.DataParallel over the visible GPUs; without two of them nothing is parallel."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        return nn.DataParallel(model)

    def for_evaluation(self, model: nn.Module, wrapped: nn.Module) -> nn.Module:
        return wrapped


STRATEGY = DataParallel
