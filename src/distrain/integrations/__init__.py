"""distrain in the forms of other libraries: a callback, a logger and a tracker.

Each module needs its library, and nothing imports it but the user's program. They call only what
any program may call: `distrain.init`, `log`, `log_eval`, `step` and `should_stop`. As those, they
also record a program that distrain has not started. A run that the program has begun is continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any


def only_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are numbers or tensors with one element."""
    return {name: value for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (hasattr(value, "detach") and value.numel() == 1)
