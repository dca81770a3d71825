"""The moment at which backward ends on this rank, for strategies that reduce during backward."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from distrain.runners.distributed.timing import Clock, Stamp


class LastGradient:
    """Stamps the moment at which the last local gradient of a backward is ready.

    The first backward shows which parameter comes last; from the second on, only the hook of
    that parameter remains.
    """

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        self.stamp: Stamp | None = None
        self._clock = clock
        self._handles: dict[nn.Parameter, RemovableHandle] = {}
        self._order: dict[nn.Parameter, None] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(self._on_gradient)
                self._handles[parameter] = handle

    def take(self) -> Stamp | None:
        """Return and forget the stamp of the last backward.

        None where that backward did not use the parameter.
        """
        stamp = self.stamp
        self.stamp = None
        return stamp

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        self.stamp = self._clock.stamp()
        if len(self._handles) > 1:
            self._find_last(parameter)

    def _find_last(self, parameter: torch.Tensor) -> None:
        """Note the order of the first backward; at the second remove the hooks of the others."""
        assert isinstance(parameter, nn.Parameter)
        if parameter in self._order:
            last = next(reversed(self._order))
            for other in self._handles.keys() - {last}:
                self._handles.pop(other).remove()
        else:
            self._order[parameter] = None
