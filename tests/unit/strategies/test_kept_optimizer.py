"""An optimizer of the user's class survives a library that makes another one of that class."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from distrain.runners.strategies.kept_optimizer import kept_when_rebuilt
from tests.support.optimizers import Scaled


class _Rebuilt(Optimizer):
    """Is built as Horovod's optimizer: on the class of another one, with its groups alone."""

    def __init__(self, params: Any) -> None:
        super(self.__class__, self).__init__(params)  # type: ignore[call-arg]

    def step(self, closure: Any = None) -> Any:
        return super(self.__class__, self).step(closure)


def rebuilt(optimizer: Optimizer) -> Optimizer:
    kind = optimizer.__class__
    made: Any = type(kind.__name__, (kind,), dict(vars(_Rebuilt)))
    built: Optimizer = made(optimizer.param_groups)
    return built


def test_options_hooks_and_state_are_those_of_the_original() -> None:
    parameter = nn.Parameter(torch.ones(3))
    plain = Scaled([parameter], lr=0.1, momentum=0.9, factor=0.5)
    calls: list[object] = []
    plain.register_step_pre_hook(lambda *_: calls.append(None))
    parameter.grad = torch.ones(3)
    plain.step()
    optimizer = rebuilt(kept_when_rebuilt(plain))
    assert isinstance(optimizer, Scaled)
    once = len(calls)
    calls.clear()
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert len(calls) == once
    momentum = 0.9 * 0.5 + 0.5
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 1 - 0.1 * (0.5 + momentum)))
    assert optimizer.state_dict()["state"][0]["momentum_buffer"][0] == momentum
