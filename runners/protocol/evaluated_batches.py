"""When this process last read a batch of an evaluation: while it reads them, it has not stalled."""

from __future__ import annotations

import time

_last_s: float | None = None  # by `time.monotonic`


def note_evaluated_batch() -> None:
    """Note that a batch of an evaluation was read."""
    global _last_s
    _last_s = time.monotonic()


def seconds_since_evaluated_batch() -> float | None:
    """Return the seconds since the last one; None if there was none."""
    return None if _last_s is None else time.monotonic() - _last_s
