"""The optimizer's update of one step in fp64, and how far rounding may move each of its results.

The update starts from the state and the gradients of the run, so errors of earlier steps and of the
gradient play no part: Adam divides a gradient by its own size, and would make the rounding error of
a gradient that is close to zero as large as a whole step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from distrain.runners.config.sections import TrainConfig
from distrain.runners.training.tap import Tensors

ROUNDINGS = 16.0  # the limit, as a multiple of the error of one rounding of each term
SHIFT = 2.0**-16  # relative change by which sensitivities are measured

OptimizerState = Mapping[int, Mapping[str, Any]]


class Updated(NamedTuple):
    """Weights and states of the optimizer after a step, by name; `limits` are absolute."""

    values: Tensors
    limits: Tensors


class ExactUpdate:
    """Steps in fp64 with torch's plain optimizer, from any state."""

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        self._model = copy.deepcopy(model).cpu().double()
        self._config = config
        self._names = [name for name, p in self._model.named_parameters() if p.requires_grad]

    def step(
        self, weights: Tensors, gradients: Tensors, state: OptimizerState, rate: float
    ) -> Updated:
        """Return what the update gives, and how far rounding may move each element.

        Each of weights, gradients and states is changed by a small fraction of itself, one after
        the other. How much a result changes shows the size of the terms that it is computed from,
        also where they cancel each other. The limit is the error of 16 roundings of each term: of
        the weight itself (its ulp), and of what it moves by.
        """
        values = self._step(weights, gradients, state, rate, {})
        sizes = {name: value.abs() for name, value in values.items()}
        for name in self._names:
            sizes[name] = sizes[name] + (values[name] - weights[name].double()).abs()
        changeable = {key for each in state.values() for key in each}
        for source in ("weights", "gradients", *sorted(changeable - {"step"})):
            changed = self._step(weights, gradients, state, rate, {source: 1 + SHIFT})
            for name, value in changed.items():
                sizes[name] = sizes[name] + (value - values[name]).abs() / SHIFT
        limits = {}
        for name, size in sizes.items():
            kind = torch.finfo(weights[name.split(":")[0]].dtype)
            limits[name] = ROUNDINGS * (kind.eps / 2) * size + kind.tiny
        return Updated(values, limits)

    def _step(
        self,
        weights: Tensors,
        gradients: Tensors,
        state: OptimizerState,
        rate: float,
        factors: Mapping[str, float],
    ) -> Tensors:
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name].double() * factors.get("weights", 1.0))
                parameter.grad = None
                if name in gradients:
                    gradient = gradients[name].double() * factors.get("gradients", 1.0)
                    parameter.grad = gradient.view_as(parameter)
        trained = [parameters[name] for name in self._names]
        optimizer = _make_optimizer(self._config, trained, rate)
        _load(optimizer, state, factors)
        optimizer.step()
        values = {name: parameters[name].detach().clone() for name in self._names}
        return values | named_state(optimizer.state_dict()["state"], self._names)

    def state_of(self, state: OptimizerState) -> Tensors:
        """Return the states of the run's optimizer by the names that `step` uses."""
        return named_state(state, self._names)


def named_state(state: OptimizerState, names: list[str]) -> Tensors:
    """Return the states of an optimizer as "1.weight:exp_avg"; without the number of steps."""
    return {
        f"{names[index]}:{key}": value
        for index, values in state.items()
        for key, value in values.items()
        if torch.is_tensor(value) and key != "step"
    }


def _load(optimizer: Optimizer, state: OptimizerState, factors: Mapping[str, float]) -> None:
    def changed(key: str, value: Any) -> Any:
        if key == "step" or not torch.is_tensor(value):
            return value
        return value.double() * factors.get(key, 1.0)

    content = optimizer.state_dict()
    content["state"] = {
        index: {key: changed(key, value) for key, value in values.items()}
        for index, values in state.items()
    }
    optimizer.load_state_dict(content)


def _make_optimizer(config: TrainConfig, parameters: list[nn.Parameter], rate: float) -> Optimizer:
    decay = config.weight_decay
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=config.momentum, weight_decay=decay, foreach=False
        )
    adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return adam(parameters, lr=rate, weight_decay=decay, foreach=False)
