"""The exponential moving average of a model's weights, which `train.ema` asks for."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from distrain.runners.errors import ConfigError

STATISTICS = ("running_mean", "running_var")


class WeightAverage:
    """A copy of a model with averaged weights; `model` is that copy.

    The average after step t is `decay` times the last one and 1 - `decay` times the weights. The
    decay of the first steps is only (1 + t) / (10 + t), which soon forgets the initial weights.
    Running statistics of BatchNorm are averaged like weights, because they belong to them. Other
    buffers, such as counters and masks, are those of the model.

    AveragedModel of torch averages either all buffers, which turns a mask of -inf into NaN and
    rounds integers, or none. Raises ConfigError where the model cannot be copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._source = model
        self._updates = 0
        try:
            self.model = copy.deepcopy(model)
        except Exception as error:
            problem = f"the model cannot be copied, to average its weights: {error}"
            raise ConfigError([("train.ema", problem)]) from None
        self._means, self._values = _averaged_tensors(self.model), _averaged_tensors(model)
        self.model.requires_grad_(False)

    def restart(self) -> None:
        """Begin with the weights that the model has now."""
        self._updates = 0
        self.model.load_state_dict(self._source.state_dict())

    @torch.no_grad()
    def update(self, skipped: Tensor | None) -> None:
        """Add the weights of the model after a step.

        `skipped` is 1, on the device, if fp16 has skipped the step, which then adds nothing.
        """
        self._updates += 1
        share = 1 - _decay_at(self._updates, self._decay)
        if skipped is None:
            torch._foreach_lerp_(self._means, self._values, share)
            return
        changes = torch._foreach_sub(self._values, self._means)
        torch._foreach_mul_(changes, share * (1 - skipped))
        torch._foreach_add_(self._means, changes)

    def copy_buffers(self) -> None:
        """Copy the buffers that are not averaged; needed before the copy is evaluated or saved."""
        for own, module in zip(self.model.modules(), self._source.modules(), strict=True):
            for name, buffer in module.named_buffers(recurse=False):
                if not (isinstance(module, _NormBase) and name in STATISTICS):
                    own.register_buffer(name, buffer.clone())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        return {"updates": self._updates, "model": self.model.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned. Raises one of checkpoint.DAMAGE."""
        self.model.load_state_dict(state["model"])
        self._updates = int(state["updates"])


def _decay_at(update: int, decay: float) -> float:
    """Return the factor of the last average in an update, counted from 1."""
    return min(decay, (1 + update) / (10 + update))


def _averaged_tensors(model: nn.Module) -> list[Tensor]:
    """Return the tensors of a model that are averaged, in a fixed order."""
    statistics = [
        getattr(module, name)
        for module in model.modules()
        if isinstance(module, _NormBase) and module.track_running_stats
        for name in STATISTICS
    ]
    return [each.detach() for each in model.parameters() if each.requires_grad] + statistics
