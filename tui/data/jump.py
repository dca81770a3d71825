"""The letters of jump mode: where they stand and what they do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class JumpTarget(NamedTuple):
    """A cell of the screen that a label marks, and what its letter does.

    Targets with a `name` are not visible: their labels stand in the last line of the screen.
    """

    x: int
    y: int
    go: Callable[[], object]
    name: str = ""


def make_labels(count: int) -> list[str]:
    """Return so many labels, none of which begins with another: one letter each, or two."""
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    pairs = ["".join(pair) for pair in product(LETTERS, repeat=2)]
    return pairs[:count]
