"""The exponential moving average of a model's weights, which `train.ema` asks for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
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
    buffers, such as counters and masks, and frozen parameters are those of the model.

    AveragedModel of torch averages either all buffers, which turns a mask of -inf into NaN and
    rounds integers, or none. Raises ConfigError where the model cannot be copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._source = model
        self._updates = 0
        try:
            with torch.no_grad():  # else the weights of a scripted copy are not its own
                self.model = copy.deepcopy(model)
        except Exception as error:
            problem = f"the model cannot be copied, to average its weights: {error}"
            raise ConfigError([("train.ema", problem)]) from None
        pairs = list(zip(self.model.parameters(), model.parameters(), strict=True))
        trained = [(own, each) for own, each in pairs if each.requires_grad]
        self._frozen = {each: own for own, each in pairs if not each.requires_grad}
        statistics = zip(_statistics(self.model), _statistics(model), strict=True)
        self._means, self._values = map(list, zip(*trained, *statistics, strict=True))
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)

    def include(self, parameter: nn.Parameter) -> None:
        """Average a parameter from now on that was frozen before."""
        self._means.append(self._frozen.pop(parameter))
        self._values.append(parameter)

    @torch.no_grad()
    def restart(self) -> None:
        """Begin with the weights that the model has now."""
        self._updates = 0
        for own, each in zip(self.model.parameters(), self._source.parameters(), strict=True):
            own.copy_(each)
        torch._foreach_copy_(self._means, self._values)

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

    @torch.no_grad()
    def copy_others(self) -> None:
        """Copy what is not averaged; needed before the copy is evaluated or saved."""
        for parameter, copied in self._frozen.items():
            copied.copy_(parameter)
        for own, module in zip(self.model.modules(), self._source.modules(), strict=True):
            for name, buffer in module.named_buffers(recurse=False):
                if not (isinstance(module, _NormBase) and name in STATISTICS):
                    _set_buffer(own, name, buffer.clone())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        return {"updates": self._updates, "model": self.model.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned. Raises one of checkpoint.DAMAGE."""
        self.model.load_state_dict(state["model"])
        self._updates = int(state["updates"])


def _set_buffer(module: nn.Module, name: str, value: Tensor) -> None:
    if name in dict(module.named_buffers(recurse=False)):
        setattr(module, name, value)  # which a scripted module allows, too
    else:
        module.register_buffer(name, value)


def _decay_at(update: int, decay: float) -> float:
    """Return the factor of the last average in an update, counted from 1."""
    return min(decay, (1 + update) / (10 + update))


def _statistics(model: nn.Module) -> Iterator[Tensor]:
    """Yield the running statistics of a model, in a fixed order."""
    for module in model.modules():
        if isinstance(module, _NormBase) and module.track_running_stats:
            yield from (getattr(module, name) for name in STATISTICS)
