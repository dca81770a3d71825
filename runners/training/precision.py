"""Precision of the arithmetic: autocast, and dynamic loss scaling for fp16."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

_NO_CONTEXT = nullcontext()  # shared, because every step enters it


class Precision:
    """Autocast and gradient scaling that work with every strategy.

    Gradients are scaled before they are reduced, unscaled once afterwards, and then clipped. If
    a gradient overflowed, all ranks skip the step. `norm` is that of the last gradients before they
    were clipped, on the device; None where nothing is clipped.
    """

    norm: Tensor | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        self._autocast_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self._device = device.type
        self._scaler = GradScaler(self._device, enabled=name == "fp16")
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = name == "tf32"

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context for the forward pass and the loss."""
        if self._autocast_dtype is None:
            return _NO_CONTEXT
        return torch.autocast(self._device, dtype=self._autocast_dtype)

    @property
    def scale(self) -> float:
        """The factor of the loss and its gradients; 1 unless this is fp16."""
        return self._scaler.get_scale()

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return the tensor to call `backward()` on."""
        return self._scaler.scale(loss)

    def step(
        self, optimizer: Optimizer, parameters: list[nn.Parameter], clip_norm: float | None
    ) -> Tensor | None:
        """Clip the gradients and make the optimizer's step.

        Returns, in fp16 only, a 0-dim tensor on the device: 1 if the step was skipped, else 0.
        """
        if clip_norm is None and not self._scaler.is_enabled():
            optimizer.step()
            return None
        self._scaler.unscale_(optimizer)
        if clip_norm is not None:
            self.norm = nn.utils.clip_grad_norm_(parameters, clip_norm)
        skipped = self._overflow_flag(optimizer)
        self._scaler.step(optimizer)
        self._scaler.update()
        return skipped

    def _overflow_flag(self, optimizer: Optimizer) -> Tensor | None:
        if not self._scaler.is_enabled():
            return None
        # The public way to get this flag waits for the device.
        flag: Tensor = next(iter(self._scaler._found_inf_per_device(optimizer).values()))
        return flag.clone()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss scale; empty unless this is fp16."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the loss scale, if this is fp16 and the checkpoint has one."""
        if state and self._scaler.is_enabled():
            self._scaler.load_state_dict(state)
