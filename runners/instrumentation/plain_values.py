"""What a program passes to distrain, in the types and lengths that messages may contain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from numbers import Integral, Real
from typing import Any, TypeVar

from distrain.runners import formatting
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
    """Return a number of samples. Raises ValueError for a negative or too large one, TypeError."""
    samples = to_step(given)
    if samples < 0:
        raise ValueError(f"{samples} samples: the number is negative")
    return samples


def to_step(given: Any) -> int:
    """Return a step. Raises ValueError for one that is too large, and TypeError."""
    step = int(given)
    if abs(step) > NEVER:
        raise ValueError(f"{step} is larger than 2**53")
    return step


def to_setting(value: Any) -> str | int | float | bool | None:
    """Return a setting; what is neither a number that JSON can represent nor None becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        if abs(whole := int(value)) <= NEVER:
            return whole
    elif isinstance(value, Real) and math.isfinite(value):
        return float(value)
    return to_text(value)


def in_parts(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of at most `size`, because a message has a greatest length."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
