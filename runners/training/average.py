"""Averages of weights over the steps: moving (`train.ema`), or equal (`train.swa_share`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.errors import ConfigError
from distrain.runners.training.buffers import set_buffer

STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class MovingAverage:
    """The average after an update is `decay` times the last one and 1 - `decay` times the weights.

    The decay of the first updates is only (1 + t) / (10 + t), which soon forgets the initial
    weights.
    """

    decay: float
    name: ClassVar = "ema"
    counts_skipped: ClassVar = False
    start: ClassVar = 1

    def share(self, step: int, update: int) -> float:
        """Return the share of the weights after a step in an update, counted from 1."""
        return 1 - min(self.decay, (1 + update) / (10 + update))


@dataclass(frozen=True)
class EqualAverage:
    """The mean of the weights after step `start` and every `every` steps from there.

    This is stochastic weight averaging (Izmailov et al. 2018).
    """

    start: int
    every: int
    name: ClassVar = "swa"
    counts_skipped: ClassVar = True

    def share(self, step: int, update: int) -> float:
        """Return the share of the weights after a step in an update; 0: it makes none."""
        return 0.0 if (step - self.start) % self.every else 1 / update


def average_rule(config: TrainConfig, total_steps: int) -> MovingAverage | EqualAverage | None:
    """Return how the config averages the weights of a run of so many steps; None: not at all."""
    if config.ema:
        return MovingAverage(config.ema)
    if config.swa_share:
        averaged = max(1, round(config.swa_share * total_steps))
        return EqualAverage(total_steps - averaged + 1, config.swa_every_steps)
    return None


class WeightAverage:
    """A copy of a model with averaged weights; `model` is that copy.

    Before the first update it has the weights of the model. Running statistics of BatchNorm are
    averaged like weights, because they belong to them; those of an equal average, whose weights lie
    further apart, are to be computed again (`has_old_statistics`). Other buffers, such as counters
    and masks, and frozen parameters are those of the model.

    AveragedModel of torch averages either all buffers, which turns a mask of -inf into NaN and
    rounds integers, or none. Raises ConfigError where the model cannot be copied.
    """

    def __init__(self, model: nn.Module, rule: MovingAverage | EqualAverage) -> None:
        self.rule = rule
        self._source = model
        self._updates = 0
        self._updates_of_statistics = 0
        try:
            with torch.no_grad():  # else the weights of a scripted copy are not its own
                self.model = copy.deepcopy(model)
        except Exception as error:
            problem = f"the model cannot be copied, to average its weights: {error}"
            key = "train.ema" if isinstance(rule, MovingAverage) else "train.swa_share"
            raise ConfigError([(key, problem)]) from None
        pairs = list(zip(self.model.parameters(), model.parameters(), strict=True))
        trained = [(own, each) for own, each in pairs if each.requires_grad]
        self._frozen = {each: own for own, each in pairs if not each.requires_grad}
        statistics = zip(_statistics(self.model), _statistics(model), strict=True)
        self._means, self._values = map(list, zip(*trained, *statistics, strict=True))
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)

    @property
    def has_begun(self) -> bool:
        """Whether weights were averaged."""
        return self._updates > 0

    @property
    def has_old_statistics(self) -> bool:
        """Whether statistics must be computed again: weights were averaged since the last time."""
        is_equal = isinstance(self.rule, EqualAverage)
        return is_equal and self._updates > 0 and self._updates != self._updates_of_statistics

    def note_new_statistics(self) -> None:
        """Note that the statistics are now those of the averaged weights."""
        self._updates_of_statistics = self._updates

    def include(self, parameter: nn.Parameter) -> None:
        """Average a parameter from now on that was frozen before."""
        if parameter in self._frozen:  # else a checkpoint has its average
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
    def update(self, step: int, skipped: Tensor | None) -> None:
        """Add the weights of the model after a step.

        `skipped` is 1, on the device, if fp16 has skipped the step, which then adds nothing to a
        moving average.
        """
        if step < self.rule.start:
            self._updates = 0
            return
        share = self.rule.share(step, self._updates + 1)
        if not share:
            return
        self._updates += 1
        if skipped is None or self.rule.counts_skipped:
            torch._foreach_lerp_(self._means, self._values, share)
            return
        changes = torch._foreach_sub(self._values, self._means)
        torch._foreach_mul_(changes, share * (1 - skipped))
        torch._foreach_add_(self._means, changes)

    @torch.no_grad()
    def copy_others(self) -> None:
        """Copy what is not averaged; needed before the copy is evaluated or saved."""
        if not self._updates:
            self.restart()
        for parameter, copied in self._frozen.items():
            copied.copy_(parameter)
        for own, module in zip(self.model.modules(), self._source.modules(), strict=True):
            for name, buffer in module.named_buffers(recurse=False):
                if not (isinstance(module, _NormBase) and name in STATISTICS):
                    set_buffer(own, name, buffer.clone())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        frozen = [name for name, each in self._source.named_parameters() if each in self._frozen]
        return {"updates": self._updates, "frozen": frozen, "model": self.model.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned. Raises one of checkpoint.DAMAGE."""
        self.model.load_state_dict(state["model"])
        self._updates = int(state["updates"])
        if "frozen" in state:  # parameters that were trained later are frozen again in a new model
            for name, parameter in self._source.named_parameters():
                if name not in state["frozen"]:
                    self.include(parameter)


def _statistics(model: nn.Module) -> Iterator[Tensor]:
    """Yield the running statistics of a model, in a fixed order."""
    for module in model.modules():
        if isinstance(module, _NormBase) and module.track_running_stats:
            yield from (getattr(module, name) for name in STATISTICS)
