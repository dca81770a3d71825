"""Run ids: how they are made, and the short names under which runs are shown."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Sequence

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SUFFIX_LENGTH = 4


def new_run_id(word: str, now: float | None = None) -> str:
    """Return a new id that contains `word` and sorts by time: `20261121-044117-ddp-x7k2`.

    `now` is the time in Unix seconds; the id shows it in UTC.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:24].rstrip("-") or "run"
    random = os.urandom(_SUFFIX_LENGTH)
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in random)
    return f"{stamp}-{slug}-{suffix}"


def short_id(run_id: str) -> str:
    """Return an id without its time: "ddp-x7k2"; other names as they are."""
    day, _, rest = run_id.partition("-")
    clock, _, rest = rest.partition("-")
    return rest if day.isdigit() and clock.isdigit() and rest else run_id


def display_names(runs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each run, given as (name, id), where the name may be empty.

    That is the name, or else the word in the id ("ddp"). Where two would be equal, the end of the
    id follows.
    """
    names = [name or word_of(run_id) for name, run_id in runs]
    counts = Counter(names)
    return [
        f"{name} {run_id[-_SUFFIX_LENGTH:]}" if counts[name] > 1 else name
        for name, (_, run_id) in zip(names, runs, strict=True)
    ]


def word_of(run_id: str) -> str:
    """Return the word that an id was made of; a folder that was named by hand has its full name."""
    short = short_id(run_id)
    return run_id if short == run_id else short.rpartition("-")[0] or run_id
