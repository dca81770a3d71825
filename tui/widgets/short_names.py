"""Names of a column that is too narrow for them, which differ in some of their words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

_WORDS = re.compile(r"(?:[^,./\s]|\.(?=\d))+|.")  # "ddp,train.lr=0.1" has ddp , train . lr=0.1


def drop_common_words(names: Sequence[str], width: int) -> list[str]:
    """Return the names. If one is longer than `width`, leave out the words with which all begin or
    end.
    """
    if len(names) < 2 or max(map(len, names)) <= width:
        return list(names)
    words = [_WORDS.findall(name) for name in names]
    own = min(map(len, words)) - 1  # so that one word stays
    first = min(_count_common(words), own)
    last = min(_count_common([each[::-1] for each in words]), own - first)
    return [
        ("…" if first else "") + "".join(each[first : len(each) - last]) + ("…" if last else "")
        for each in words
    ]


def _count_common(lists: Sequence[Sequence[str]]) -> int:
    """Return how many words all lists begin with."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False)))
