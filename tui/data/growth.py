"""Whether a record has grown: what lets a screen that shows nothing new cost next to nothing."""

from __future__ import annotations

from contextlib import suppress

from runners.errors import DistrainError
from runners.record import Record

FILES = ("run.json", "meta.json", "metrics.db", "metrics.db-wal")


class Growth:
    """Remembers how a record looked: a few stats, no query."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._seen: object = None

    def changed(self) -> bool:
        """Whether it looks otherwise than at the last call."""
        # A supervisor that was killed writes nothing more, so its life is part of the look.
        now = [*(self._stamp(name) for name in FILES), self._lives()]
        changed, self._seen = now != self._seen, now
        return changed

    def _lives(self) -> bool:
        with suppress(DistrainError):  # the reader of a record says what is wrong with it
            return self._record.live
        return False

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            stat = (self._record.dir / name).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size
