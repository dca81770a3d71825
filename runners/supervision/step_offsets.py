"""The steps of ranks that their program starts more than once."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from distrain.runners.protocol.events import (
    Event,
    Failure,
    Finished,
    Logged,
    RankEvaluation,
    Stacks,
    Window,
)


class StepOffsets:
    """Adds the steps of the earlier processes of a rank to those that its newest one reports.

    A program may count the steps of logged values itself, over all processes. Those are kept.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._last_logged: dict[int, int] = {}
        self._offsets: dict[int, int] = {}
        self._logged_offsets: dict[int, int] = {}

    def begin(self, ranks: Iterable[int]) -> int:
        """Let these ranks continue after their last steps; return the furthest of these."""
        for rank in ranks:
            self._offsets[rank] = self._last.get(rank, 0)
            self._logged_offsets.pop(rank, None)
        return max(self._offsets.values(), default=0)

    def apply(self, event: Event) -> Event:
        """Return what a rank has sent, with its steps counted over all its processes."""
        match event:
            case Logged():
                step = event.step + self._logged_offset(event)
                self._last_logged[event.rank] = step
            case Window() | RankEvaluation() | Finished() | Failure() | Stacks():
                step = event.step + self._offsets.get(event.rank, 0)
                if isinstance(event, Window):
                    self._last[event.rank] = step
            case _:
                return event
        return event if step == event.step else structs.replace(event, step=step)

    def _logged_offset(self, event: Logged) -> int:
        if event.rank not in self._offsets:
            return 0
        base = max(self._last_logged.get(event.rank, 0), self._offsets[event.rank])
        continues = event.step > base
        return self._logged_offsets.setdefault(event.rank, 0 if continues else base)

    def reset(self) -> None:
        """Count the steps of a new attempt from its beginning."""
        for each in (self._last, self._last_logged, self._offsets, self._logged_offsets):
            each.clear()
