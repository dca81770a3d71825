"""Which devices there are and which of them a run uses. Lists GPUs through NVML, never torch.

NVML and CUDA may count GPUs in different order: a device is known by its UUID, and ranks get
`CUDA_VISIBLE_DEVICES` made of UUIDs.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU (`index` is NVML's) or one CPU process (`index` counts them)."""

    kind: Literal["cpu", "cuda"]
    index: int
    uuid: str = ""
    name: str = ""
    memory: int | None = None

    @property
    def label(self) -> str:
        return f"{self.kind}:{self.index}"
