"""What is typed or pasted into a field, and how much of it would be lost."""

from __future__ import annotations

import unicodedata

MUCH = 20  # characters, which nobody likes to type again
MOST_PASTED = 20_000  # characters: a field takes seconds for each key after a million


def is_much(before: str, now: str) -> bool:
    """Return whether a changed text is so long that discarding it needs a question."""
    return now != before and len(now) >= MUCH


def single_line(pasted: str) -> str:
    """Return a pasted text as fields hold it: lines joined by spaces, no control characters."""
    line = " ".join(pasted.splitlines())
    return "".join(" " if unicodedata.category(each) == "Cc" else each for each in line)
