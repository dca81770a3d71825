"""The global random generators of a rank: how they are seeded, saved and restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from distrain.runners.distributed.numpy_state import restored_numpy_state


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch in this process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def get_random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of all global generators, as types that `weights_only` loading accepts."""
    version, internal, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    state = {
        "python": [version, list(internal), gauss],
        "numpy": [kind, [int(key) for key in keys], *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore what `get_random_state` returned; the state of a CPU run has nothing for a GPU."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(restored_numpy_state(state["numpy"]))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
