"""Things that a run says, made up: the fields that a test does not name are of no matter to it."""

from __future__ import annotations

from typing import Any

from runners.events import Window


def a_window(rank: int = 0, step: int = 1, steps: int = 1, **changes: Any) -> Window:
    """So many steps of 4 samples each, with a loss of 2, in half a second; ten make an epoch."""
    fields: dict[str, Any] = {
        "time": 1000.0 + step,
        "epoch": step // 10,
        "samples": 4 * steps,
        "loss_sum": 8.0 * steps,
        "loss_min": 2.0,
        "loss_max": 2.0,
        "lr": 0.1,
        "seconds": 0.5,
    }
    return Window(rank=rank, step=step, steps=steps, **(fields | changes))
