"""What a program passes to distrain, in the types and lengths that messages may contain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from numbers import Integral, Real
from typing import Any, TypeVar

from distrain.runners import formatting
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import NEVER

LONGEST_NAME = 200
LONGEST_TEXT = 4_000

Item = TypeVar("Item")


def to_text(given: Any, limit: int = LONGEST_TEXT) -> str:
    """Return a text of bounded length that UTF-8 can represent, which file names may not be."""
    text = str(given)[:limit]
    return text.encode("utf-8", "backslashreplace").decode()[:limit]


def to_name(given: Any) -> str:
    """Return the name of a value, which may be any object, as one line of printable text."""
    return formatting.single_line(to_text(given, LONGEST_NAME))


def to_samples(given: Any) -> int:
    """Return a number of samples. Raises ConfigError for other values."""
    samples = to_whole(given, "samples")
    if samples < 0:
        raise ConfigError(f"samples must not be negative, as {samples} is")
    return samples


def to_step(given: Any) -> int:
    """Return a step. Raises ConfigError for one that is no number or too large."""
    return to_whole(given, "step")


def to_whole(given: Any, what: str) -> int:
    """Return a whole number that a message may contain. Raises ConfigError."""
    try:
        number = int(given)
        if isinstance(given, Real) and number != given:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{what} must be a whole number, not {to_text(given, 40)!r}") from None
    if abs(number) > NEVER:
        raise ConfigError(f"{what} must be a whole number up to 2**53, not a larger one")
    return number


def require_mapping(given: Any, what: str) -> None:
    """Raise ConfigError where a program has not given values by name."""
    if not hasattr(given, "items"):
        raise ConfigError(
            f"{what} must be a mapping of names to values, not {type(given).__name__}"
        )


def to_setting(value: Any) -> str | int | float | bool | None:
    """Return a setting; what is neither a number that JSON can represent nor None becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        if abs(whole := int(value)) <= NEVER:
            return whole
    elif isinstance(value, Real) and math.isfinite(number := to_float(value)):
        return number
    return to_text(value)


def to_float(number: Any) -> float:
    """Return a number as a float; one that is too large for a float is infinite.

    Raises TypeError or ValueError for what is no number.
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def in_parts(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of at most `size`, because a message has a greatest length."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
