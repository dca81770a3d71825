"""A stall: a live run in which ranks make no progress."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from distrain.runners import formatting


class RankPhase(StrEnum):
    """What a rank is doing, as far as its calls or its reports tell."""

    START = "start"
    COMPILATION = "compilation"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "collective"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    GPU = "GPU synchronisation"
    EXIT = "exit"


class Condition(StrEnum):
    """Why a rank does not answer its supervisor."""

    EXITED = "exited"
    UNRESPONSIVE = "not responding"
    STOPPED = "stopped by a signal"


class RankPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank of a stalled run is; fields of which nothing is known are empty.

    `since` is the Unix time of its last progress, `step` its last step. `phase` is a RankPhase,
    `condition` a Condition, and `call` the innermost call in the user's code. `collective` is the
    oldest one that has begun and not ended, `sequence` its number in its process group; where none
    is pending, `sequence` is the number of the last one.
    """

    rank: int
    since: float
    step: int = 0
    phase: str = ""
    condition: str = ""
    call: str = ""
    collective: str = ""
    sequence: int | None = None

    @property
    def place(self) -> str:
        """Return where it is, such as "in data (data.py:7 in load)"."""
        if self.condition == Condition.EXITED:
            return "has exited"
        activity = "exiting" if self.phase == RankPhase.EXIT else f"in {self.phase or 'other code'}"
        parts = [self.condition or activity]
        if self.condition and self.phase:
            parts.append(f"in {self.phase}")
        if self.call:
            parts.append(f"({formatting.single_line(self.call)})")
        return " ".join(parts)


PROGRESS_UNKNOWN = "progress unknown: no step reported yet"  # of a script, which never stalls
COLUMNS = ("rank", "step", "where", "no progress", "pending collective")


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Which ranks the others wait for.

    `since` is the Unix time of the last progress, `ranks` are those that are absent, or all where
    they cannot be told apart. `waiting` is the phase of the others, `mismatch` describes different
    collectives in which ranks wait for each other, and `positions` are those of all ranks.
    """

    since: float
    ranks: list[int]
    waiting: str = ""
    mismatch: str = ""
    positions: list[RankPosition] = []

    @property
    def first(self) -> RankPosition | None:
        """The position of the first absent rank."""
        absent = set(self.ranks)
        return next((each for each in self.positions if each.rank in absent), None)

    @property
    def told_apart(self) -> list[int]:
        """The absent ranks, unless nobody knows which of the ranks are absent."""
        return self.ranks if len(self.ranks) < len(self.positions) else []

    def describe(self, now: float) -> str:
        """Return a sentence: "no progress for 12 s: rank 1 is in data; the others wait in …"."""
        return f"no progress for {formatting.duration(now - self.since)}: {self.cause}"

    @property
    def cause(self) -> str:
        """A clause: "rank 1 is in data; the others wait in …"."""
        if self.mismatch:
            return formatting.single_line(self.mismatch)
        who = formatting.ranks(self.ranks)
        is_one = len(self.ranks) == 1
        if self.first and self.first.condition == Condition.EXITED:
            text = f"{who} {'has' if is_one else 'have'} exited"
        else:
            place = self.first.place if self.first else "in other code"
            text = f"{who} {'is' if is_one else 'are'} {place}"
        return f"{text}; the others wait in {self.waiting}" if self.waiting else text

    def rows(self, now: float) -> list[tuple[str, str, str, str, str]]:
        """Return a row of text per rank, the absent ones first; the columns are COLUMNS."""
        return [
            (
                str(each.rank),
                formatting.count(each.step),
                each.place,
                formatting.duration(now - each.since),
                _describe_collective(each),
            )
            for each in sorted(self.positions, key=lambda each: each.rank not in self.ranks)
        ]

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what `show --json` prints; `since_s` are the seconds without progress."""
        first = self.first
        return {
            "ranks": self.ranks,
            "phase": first.phase if first else "",
            "condition": first.condition if first else "",
            "call": first.call if first else "",
            "since_s": round(now - self.since, 3),
            "waiting": self.waiting,
            "mismatch": self.mismatch,
            "positions": [
                {
                    "rank": each.rank,
                    "step": each.step,
                    "phase": each.phase,
                    "condition": each.condition,
                    "call": each.call,
                    "collective": each.collective,
                    "sequence": each.sequence,
                    "since_s": round(now - each.since, 3),
                }
                for each in self.positions
            ],
        }


def _describe_collective(position: RankPosition) -> str:
    """Return number and call of the pending collective; without one, the number of the last."""
    if position.sequence is None:
        return ""
    if position.collective:
        return f"{position.sequence:,} {formatting.single_line(position.collective)}"
    return f"none after {position.sequence:,}"
