"""The state of a numpy generator as a checkpoint has it: lists, numbers and text."""

from __future__ import annotations

from typing import Any

import numpy as np

KEYS = 624  # of MT19937


def restored_numpy_state(saved: list[Any]) -> tuple[Any, ...]:
    """Return what `set_state` takes. Raises ValueError or TypeError where `saved` is damaged.

    numpy does not check the position, and would read outside of its memory.
    """
    kind, keys, position, *gauss = saved
    if not 0 <= position <= KEYS:
        raise ValueError("position")
    return (kind, np.array(keys, dtype=np.uint32), position, *gauss)
