"""The optimizer's update of one step in fp64, and how far rounding may move each of its results.

The update starts from the state and the gradients of the run, so errors of earlier steps and of the
gradient play no part: Adam divides a gradient by its own size, and would make the rounding error of
a gradient that is close to zero as large as a whole step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from distrain.models.task import give_turn
from distrain.runners.training.tap import Tensors
from distrain.runners.training.task_optimizer import make_optimizer, option_names
from distrain.runners.training.turns import Turns
from distrain.runners.verification.reference import PlainProcess
from distrain.runners.verification.wide import widen, widen_module

ROUNDINGS = 16.0  # the limit, as a multiple of the error of one rounding of each term
SHIFT = 2.0**-16  # relative change by which sensitivities are measured
BETA_ROUNDINGS = 8.0  # of the fused Adam on GPUs: of each beta, and 4 ulp of its power (powf)

OptimizerState = Mapping[int, Mapping[str, Any]]


class BeforeUpdate(NamedTuple):
    """What an update depends on; `groups` have the numbers in the groups of the optimizer."""

    weights: Tensors
    gradients: Tensors
    state: OptimizerState
    rate: float
    groups: Sequence[Mapping[str, Any]]


class Updated(NamedTuple):
    """Weights and states of the optimizer after a step, by name; `limits` are absolute."""

    values: Tensors
    limits: Tensors


class ExactUpdate:
    """Steps in fp64 with torch's plain kernels, from any state."""

    def __init__(self, process: PlainProcess) -> None:
        self._config = process.config.train
        self._task = process.task
        self._model = copy.deepcopy(process.model)
        for parameter in self._model.parameters():
            if not parameter.is_leaf:  # as in the copy of a model in TorchScript
                parameter.detach_().requires_grad_()
        widen_module(self._model.cpu())
        self._parameters = dict(self._model.named_parameters())
        names = {parameter: name for name, parameter in self._parameters.items()}
        groups = self._make_optimizer().param_groups
        self.names = [names[each] for group in groups for each in group["params"]]
        self.scales = [float(group["lr_scale"]) for group in groups]
        self._beta_roundings = 0.0
        if process.device.type == "cuda":
            self._beta_roundings = _roundings_of_betas(groups)

    def _make_optimizer(self) -> Optimizer:
        turn = self._task.turn
        options = {"fused": False, "foreach": False}
        optimizer, _ = make_optimizer(self._config, self._task, self._model, **options)
        if isinstance(optimizer, Turns):
            optimizer.begin(optimizer.names.index(turn))
            give_turn(self._task, turn)
        return optimizer

    def step(self, before: BeforeUpdate) -> Updated:
        """Return what the update gives, and how far rounding may move each element.

        Each of weights, gradients and states is changed by a small fraction of itself, one after
        the other. How much a result changes shows the size of the terms that it is computed from,
        also where they cancel each other. The limit is the error of 16 roundings of each term: of
        the weight itself (its ulp), and of what it moves by.
        """
        weights = before.weights
        values = self._step(before, {})
        moved = {name: value.abs() for name, value in values.items()}
        moved |= {name: (values[name] - widen(weights[name])).abs() for name in self.names}
        own = {name: values[name].abs() for name in self.names}
        changeable = {key for each in before.state.values() for key in each}
        for source in ("weights", "gradients", *sorted(changeable - {"step"})):
            sizes = own if source == "weights" else moved
            changed = self._step(before, {source: 1 + SHIFT})
            for name, value in changed.items():
                sizes[name] = sizes.get(name, 0.0) + (value - values[name]).abs() / SHIFT
        limits = {}
        for name, size in moved.items():
            kind = torch.finfo(weights[name.split(":")[0]].dtype)
            total = ROUNDINGS * (size + own.get(name, 0.0)) + self._beta_roundings * size
            limits[name] = (kind.eps / 2) * total + kind.tiny
        return Updated(values, limits)

    def _step(self, before: BeforeUpdate, factors: Mapping[str, float]) -> Tensors:
        """Return the values after the update, from sources that are multiplied by factors."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(widen(before.weights[name]) * factors.get("weights", 1.0))
                parameter.grad = None
                if name in before.gradients:
                    gradient = widen(before.gradients[name]) * factors.get("gradients", 1.0)
                    parameter.grad = gradient.view_as(parameter)
        optimizer = self._make_optimizer()
        _load(optimizer, before.state, factors)
        options = option_names(optimizer)
        for group, numbers in zip(optimizer.param_groups, before.groups, strict=True):
            kept = {name: each for name, each in numbers.items() if name not in options}
            group.update(copy.deepcopy(kept))
            group["lr"] = before.rate * group["lr_scale"]
        optimizer.step()
        values = {name: self._parameters[name].detach().clone() for name in self.names}
        return values | named_state(optimizer.state_dict()["state"], self.names)

    def state_of(self, state: OptimizerState) -> Tensors:
        """Return the states of the run's optimizer by the names that `step` uses."""
        return named_state(state, self.names)


def _roundings_of_betas(groups: Sequence[Mapping[str, Any]]) -> float:
    """Return how far rounding the betas of Adam moves an update, in roundings of the update.

    The fused Adam of torch for GPUs rounds them to fp32, and computes with their distance from 1.
    """
    betas = [float(beta) for group in groups for beta in group.get("betas", ())]
    return BETA_ROUNDINGS / max(1 - max(betas), SHIFT) if betas else 0.0


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
        if key == "step":
            return value
        factor = factors.get(key, 1.0)
        return tree_map_only(torch.Tensor, lambda each: widen(each) * factor, value)

    content = optimizer.state_dict()
    content["state"] = {
        index: {key: changed(key, value) for key, value in values.items()}
        for index, values in state.items()
    }
    optimizer.load_state_dict(content)
