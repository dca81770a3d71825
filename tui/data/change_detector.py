"""Detect that a record has changed, so that a screen without news costs next to nothing."""

from __future__ import annotations

from contextlib import suppress

from distrain.runners.errors import DistrainError
from distrain.runners.records.reader import Record

FILES = ("run.json", "meta.json", "metrics.db", "metrics.db-wal")


class ChangeDetector:
    """Compares the state of a record's files with that at the last call: a few stats, no query."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._last: object = None

    def has_changed(self) -> bool:
        """Return whether the record has changed since the last call."""
        # A supervisor that was killed writes nothing more, so compare whether it is alive as well.
        current = [*(self._stamp(name) for name in FILES), self._is_live()]
        changed = current != self._last
        self._last = current
        return changed

    def _is_live(self) -> bool:
        with suppress(DistrainError):  # the reader of the record reports what is wrong with it
            return self._record.live
        return False

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            stat = (self._record.dir / name).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size
