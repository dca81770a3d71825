"""When backward is done on this rank, for strategies that reduce beside it."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from runners.clock import Clock, Stamp


class LastGradient:
    """The moment at which the last local gradient of a backward is ready.

    Which parameter comes last is seen in the first backward; from then on one hook remains.
    """

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        self.stamp: Stamp | None = None
        self._clock = clock
        self._handles: dict[nn.Parameter, RemovableHandle] = {}
        self._order: dict[nn.Parameter, None] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(self._ready)
                self._handles[parameter] = handle

    def take(self) -> Stamp | None:
        """The moment in the backward just done; None where that parameter had no part in it."""
        stamp, self.stamp = self.stamp, None
        return stamp

    def _ready(self, parameter: torch.Tensor) -> None:
        self.stamp = self._clock.stamp()
        if len(self._handles) > 1:
            self._settle(parameter)

    def _settle(self, parameter: torch.Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        if parameter in self._order:
            last = next(reversed(self._order))
            for other in self._handles.keys() - {last}:
                self._handles.pop(other).remove()
        else:
            self._order[parameter] = None
