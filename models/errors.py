"""Errors for mistakes in `[task]`, `[model]` and `[data]`: one sentence with its key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TaskError(ValueError):
    """A task cannot be built from the config; `key` is the wrong setting, e.g. "model.args".

    Any other exception from building a task is a bug, in distrain or in the user's code, and
    keeps its traceback.
    """

    def __init__(self, key: str, sentence: str) -> None:
        self.key = key
        self.sentence = sentence
        super().__init__(key, sentence)

    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint to append to "unknown X": similar names, or else all names if they are few."""
    names = sorted(known)
    if close := difflib.get_close_matches(name, names, n=3, cutoff=0.5):
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if 0 < len(names) <= 15 else ""
