"""What a user got wrong in `[task]`, `[model]` or `[data]`: one sentence with its key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TaskError(ValueError):
    """A task that cannot be made as asked; `key` is that of the config ("model.args").

    Anything else that escapes from building a task is a bug, ours or the user's, and keeps
    its traceback.
    """

    def __init__(self, key: str, sentence: str) -> None:
        self.key = key
        self.sentence = sentence
        super().__init__(key, sentence)

    def __str__(self) -> str:
        return f"{self.key}: {self.sentence}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to append to "unknown X": the close names, else all of a short list."""
    names = sorted(known)
    if close := difflib.get_close_matches(name, names, n=3, cutoff=0.5):
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if 0 < len(names) <= 15 else ""
