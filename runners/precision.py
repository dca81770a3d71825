"""Precision of the arithmetic: autocast, and dynamic loss scaling where fp16 needs it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

NOTHING = nullcontext()  # one for all steps


class Precision:
    """Composes with every strategy: gradients are scaled before they are reduced, unscaled
    once after, clipped, and the step is skipped on all ranks alike when one overflowed.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self._autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self._device = device.type
        self._scaler = GradScaler(self._device, enabled=name == "fp16")
        exact = "high" if name == "tf32" else "highest"
        torch.set_float32_matmul_precision(exact)
        torch.backends.cudnn.allow_tf32 = name == "tf32"

    def autocast(self) -> AbstractContextManager[Any]:
        """Around forward and loss."""
        if self._autocast is None:
            return NOTHING
        return torch.autocast(self._device, dtype=self._autocast)

    def scaled(self, loss: Tensor) -> Tensor:
        """The tensor to call `backward()` on."""
        return self._scaler.scale(loss)

    def step(
        self, optimizer: Optimizer, parameters: list[nn.Parameter], clip: float | None
    ) -> Tensor | None:
        """Clip and step; gives, under fp16, a 0-dim tensor that is 1 where it was skipped."""
        if clip is None and not self._scaler.is_enabled():
            optimizer.step()
            return None
        self._scaler.unscale_(optimizer)
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        skipped = self._overflow(optimizer)
        self._scaler.step(optimizer)
        self._scaler.update()
        return skipped

    def _overflow(self, optimizer: Optimizer) -> Tensor | None:
        if not self._scaler.is_enabled():
            return None
        # The public way to learn this waits for the device.
        found: Tensor = next(iter(self._scaler._found_inf_per_device(optimizer).values()))
        return found.clone()

    def state_dict(self) -> dict[str, Any]:
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # Another precision may have written the checkpoint, without a scale.
        if state and self._scaler.is_enabled():
            self._scaler.load_state_dict(state)
