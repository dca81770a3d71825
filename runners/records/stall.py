"""A stall: a live run in which ranks make no progress."""

from __future__ import annotations

from typing import Any

import msgspec

from distrain.runners import formatting


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Which ranks the others wait for.

    `since` is the Unix time of the last progress, `ranks` are those that are absent, or all where
    they cannot be told apart. `phase` is the phase that they are in, `call` the innermost call of
    the first one in the user's code, and `waiting` the phase of the others.
    """

    since: float
    ranks: list[int]
    phase: str = ""
    call: str = ""
    waiting: str = ""

    def describe(self, now: float) -> str:
        """Return a sentence: "no progress for 12 s: rank 1 is in data; the others are in …"."""
        who = formatting.ranks(self.ranks)
        verb = "is" if len(self.ranks) == 1 else "are"
        where = self.phase if self.phase in RESPONDS_NOT else f"in {self.phase or OTHER_CODE}"
        if self.call:
            where += f" ({formatting.single_line(self.call)})"
        text = f"no progress for {formatting.duration(now - self.since)}: {who} {verb} {where}"
        return f"{text}; the others wait in {self.waiting}" if self.waiting else text

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what `show --json` prints; `since_s` are the seconds without progress."""
        since_s = round(now - self.since, 3)
        return {
            "ranks": self.ranks,
            "phase": self.phase,
            "call": self.call,
            "since_s": since_s,
            "waiting": self.waiting,
        }


UNRESPONSIVE = "not responding"
STOPPED = "stopped by a signal"
OTHER_CODE = "other code"
RESPONDS_NOT = (UNRESPONSIVE, STOPPED)
