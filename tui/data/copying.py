"""Values that a person may copy from a screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class CopyValue(NamedTuple):
    """What a value is, and its text."""

    label: str
    text: str


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[CopyValue]:
    """Yield the known values of a nested mapping by their dotted keys; lists are left out."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flat_values(value, f"{key}.")
        elif isinstance(value, str | int | float) and value != "":
            yield CopyValue(key, str(value).lower() if isinstance(value, bool) else str(value))
