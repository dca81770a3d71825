"""Several optimizers that take turns, as one optimizer for the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer


class Turns(Optimizer):
    """Each step is a step of one of the optimizers, in their order.

    Their groups and their state are those of this optimizer, so its checkpoint has all of them.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        super().__init__([group for each in optimizers.values() for group in each.param_groups], {})
        self.names = list(optimizers)
        self._optimizers = list(optimizers.values())
        self._current = self._optimizers[0]
        for each in self._optimizers:
            self.state.update(each.state)
        self._share()

    def begin(self, step: int) -> str:
        """Let the optimizer of this step, counted from 0, have its turn; return its name."""
        turn = step % len(self.names)
        self._current = self._optimizers[turn]
        return self.names[turn]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that the current optimizer trains."""
        return [each for group in self._current.param_groups for each in group["params"]]

    @property
    def kinds(self) -> list[type[Optimizer]]:
        """The classes of the optimizers."""
        return [type(each) for each in self._optimizers]

    def remove_other_gradients(self) -> None:
        """Remove the gradients that the current optimizer does not step with.

        The loss of a turn gives some to the parameters of others, and an overflow there must not
        make fp16 skip this step.
        """
        own = {*self.parameters}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter not in own:
                    parameter.grad = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._current.step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        first = 0
        for each in self._optimizers:
            last = first + len(each.param_groups)
            each.param_groups = self.param_groups[first:last]
            each.state = self.state
            first = last
