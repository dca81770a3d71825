"""Merges the journal that a job keeps into the record of its run."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

from distrain.runners.protocol.events import Notice, Stop
from distrain.runners.records.journal import JournalReader
from distrain.runners.records.write_errors import report_write_errors
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.relay import request_stop

POLL_S = 1.0
MAX_UNCOMMITTED = 20_000  # rows of a long journal


class JournalMerge:
    """Reads the journal of a job whose nodes do not reach this host, as it grows.

    The record knows how many entries it contains, so that each is merged once, however often the
    supervisor is killed and another one recovers the run.
    """

    def __init__(self, folder: Path, writer: RecordWriter, coordinator: Coordinator) -> None:
        self._folder = folder
        self._writer = writer
        self._coordinator = coordinator
        self._journal = JournalReader(folder)

    def recover(self) -> None:
        """Continue where a supervisor that was killed has stopped."""
        for item in islice(self._journal.read_new(), self._writer.journal_entries):
            self._coordinator.replay(item)
            self._writer.discard_pending()
        self.merge()
        text = "recovered: the previous supervisor was gone"
        self._writer.add(Notice(time=time.time(), level="info", text=text))
        with report_write_errors():
            self._writer.commit()
        if self._coordinator.run.is_stopping:
            self._coordinator.control.stop()

    def merge(self) -> None:
        """Add all new entries to the record."""
        for item in self._journal.read_new():
            with self._writer.journal_entry(self._journal.entries_read):
                self._coordinator.replay(item)
            if self._writer.pending > MAX_UNCOMMITTED:
                with report_write_errors():
                    self._writer.commit_unless_busy()

    async def follow(self) -> None:
        """Merge the journal repeatedly, and pass a stop on to the job."""
        while True:
            self.merge()
            self._pass_on_stop()
            await asyncio.sleep(POLL_S)

    def _pass_on_stop(self) -> None:
        """Repeat a stop that was requested here until the ranks of the job have left."""
        run = self._coordinator.run
        is_wanted = run.evidence.stop_requested and not run.conditions.all_finished.is_set()
        if self._journal.exists and is_wanted:
            with suppress(OSError):
                request_stop(self._folder, Stop(restart=not run.is_stopping))
