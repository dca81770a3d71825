"""What has happened to the runs and benches of a folder, newest first.

It is derived from the rows of the table of runs; only the time until which it was seen is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from distrain.runners import formatting
from distrain.tui.data.run_rows import BENCH, RunRow

MOST = 500  # of the newest events are listed
QUEUED_S = 15.0  # a run that starts so long after its launch has waited in the queue


class HistoryEvent(NamedTuple):
    """One thing that happened: a run or bench ended or left the queue. `status` is its kind."""

    time: float
    row: RunRow
    status: str
    text: str


class History:
    """The events of all rows; `unseen` is how many of them are newer than `seen_until`."""

    def __init__(self, seen_until: float) -> None:
        self.seen_until = seen_until
        self.unseen = 0
        self._by_id: dict[str, list[HistoryEvent]] = {}

    def update(self, rows: Iterable[RunRow], gone: Iterable[str] = ()) -> None:
        """Take over rows that are new or changed, and forget those that are gone."""
        for row in rows:
            self._by_id[row.id] = list(_events(row))
        for id in gone:
            self._by_id.pop(id, None)
        self._count()

    def see(self, until: float) -> None:
        """Regard what happened until this time as seen."""
        self.seen_until = max(self.seen_until, until)
        self._count()

    @property
    def events(self) -> list[HistoryEvent]:
        """Return the newest events, the last one first."""
        events = (event for each in self._by_id.values() for event in each)
        return sorted(events, key=lambda event: event.time, reverse=True)[:MOST]

    def _count(self) -> None:
        events = (event for each in self._by_id.values() for event in each)
        self.unseen = sum(event.time > self.seen_until for event in events)


def describe_unseen(unseen: int) -> str:
    """Return how many events are new, with the key that lists them; "" for none."""
    return f"{formatting.plural(unseen, 'new event')} ({{app.history}})" if unseen else ""


def _events(row: RunRow) -> Iterator[HistoryEvent]:
    has_waited = row.started is not None and row.started - row.created > QUEUED_S
    if row.started is not None and has_waited and row.kind != BENCH:
        yield HistoryEvent(row.started, row, "running", "started from the queue")
    if row.ended is not None and not row.live:
        yield HistoryEvent(row.ended, row, row.status, row.reason or row.status)
