"""distrain in the forms of other libraries: a callback, a logger and a tracker.

Each module needs its library, and nothing imports it but the user's program. They call only what
any program may call: `distrain.init`, `log`, `log_eval`, `step`, `should_stop` and `begin_stage` of
the run. As those, they also record a program that distrain has not started. A run that the program
has begun is continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import distrain

_trainings = 0  # that have begun in this process


def begin_training() -> bool:
    """Note that a Trainer begins to train; return whether its steps are those of the run.

    They are if it is the first one of this process, and the run has no steps yet. Otherwise it may
    count from 0 while the run goes on, so its steps count after those of the run, and what it logs
    is recorded at the run's steps.
    """
    global _trainings
    _trainings += 1
    run = distrain.init(reuse=True)
    run.begin_stage()
    return _trainings == 1 and not run.steps


def only_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are numbers or tensors with one element."""
    return {name: value for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (hasattr(value, "detach") and value.numel() == 1)
