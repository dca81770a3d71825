"""How much of what was typed would be lost."""

from __future__ import annotations

MUCH = 20  # characters, which nobody likes to type again


def is_much(before: str, now: str) -> bool:
    """Return whether a changed text is so long that discarding it needs a question."""
    return now != before and len(now) >= MUCH
