"""`dp`: nn.DataParallel, one process that scatters every batch over the visible GPUs.

GPU 0 gathers the outputs, so the loss is computed once over the whole batch and is exact.
"""

from __future__ import annotations

from torch import nn

from runners.clock import Clock
from runners.strategies import Strategy


class DataParallel(Strategy):
    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        return nn.DataParallel(model)

    def for_evaluation(self, model: nn.Module, wrapped: nn.Module) -> nn.Module:
        return wrapped


STRATEGY = DataParallel
