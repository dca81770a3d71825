"""Values of any type that a user's task may return where a number is wanted."""

from __future__ import annotations

from numbers import Real

from torch import Tensor


def is_number(value: object) -> bool:
    """Return whether a value is a real number or a 0-dim tensor of one, without reading it."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.is_complex()
    return isinstance(value, Real)


def to_number(value: object) -> float | None:
    """Return a number or a 0-dim tensor as a float; None where it is neither, or complex.

    Numbers that are too large for a float are infinite.
    """
    if not is_number(value):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf")


def describe(value: object) -> str:
    """Return what a value is, as a message names it: "a tensor of shape [3]"."""
    if isinstance(value, Tensor) and value.ndim:
        return f"a tensor of shape {list(value.shape)}"
    if value is None or to_number(value) is not None:
        return "None" if value is None else "a single number"
    kind = "complex tensor" if isinstance(value, Tensor) else type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
