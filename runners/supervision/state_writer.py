"""run.json as the supervisor changes it, even while the disk is full."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from distrain.runners.errors import RunsFolderError
from distrain.runners.protocol.events import Job, Notice
from distrain.runners.records.reader import Record
from distrain.runners.records.write_errors import report_write_errors
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.outcome import Outcome
from distrain.runners.supervision.record_guard import RecordGuard

RESERVE = ".reserve"  # a file kept aside, so that a full disk has room for how the run ended


class SteadyTime:
    """Unix time that continues as if nobody had set the clock, from its creation on.

    So the time between start and end of a run is its duration. It includes the time in which the
    host was suspended, where the system counts that.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _uptime()

    def now(self) -> float:
        return self._offset + _uptime()


def _uptime() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class StateWriter:
    """Changes run.json; what a full disk refuses is kept and written with the next change."""

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._unsaved: dict[str, Any] = {}
        self._started = SteadyTime()
        self._guard = RecordGuard(writer)
        self._refusal = ""  # why the last measurements could not be written

    def restore(self) -> None:
        """Write again what somebody else has deleted or overwritten, with a notice."""
        self._report(self._guard.restore())

    async def restore_in_background(self) -> None:
        """Do as `restore`, without a wait for a large database; nothing is committed meanwhile."""
        self._report(self._guard.restore_small_files())
        # In the thread, which goes on where this is cancelled.
        await asyncio.to_thread(lambda: self._report(self._guard.restore_database()))

    def _report(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._writer.add(Notice(time=time.time(), text=text, level="warning"))

    def set(self, **changes: Any) -> None:
        """Change fields of run.json. Without arguments, write what was refused before."""
        self._unsaved |= changes
        if "started" in changes:
            self._started = SteadyTime()
        job = changes.get("job")
        if isinstance(job, Job):
            self._unsaved |= self._changes_with_job(job)
        if self._unsaved:
            with report_write_errors():
                self._writer.set_state(**self._unsaved)
                self._unsaved = {}

    def touch(self) -> None:
        """Show that the supervisor is there, also while it has nothing to write or cannot."""
        with suppress(OSError):
            os.utime(self._writer.dir / "run.json")

    def commit(self) -> None:
        """Write what was received; while the record cannot be written, run.json says why.

        What is refused is kept and tried again with the next call.
        """
        self._report_refusal(self._try_to_commit())

    async def commit_in_background(self) -> None:
        """Do as `commit` while other tasks run: a disk may be slow, or a database be locked."""
        self._report_refusal(await asyncio.to_thread(self._try_to_commit))

    def _try_to_commit(self) -> str:
        """Commit, and return what refused it."""
        try:
            self._writer.commit()
        except RunsFolderError as error:
            return str(error)
        return ""

    def _report_refusal(self, refusal: str) -> None:
        if refusal != self._refusal:
            self._refusal = refusal
            self.set(reason=refusal)
            with suppress(OSError):  # the log is on the same disk
                print(refusal or "the record can be written again", file=sys.stderr, flush=True)

    def finish(self, outcome: Outcome) -> None:
        """Write how the run ended, and close the record."""
        self.restore()
        self.commit()
        # Not before the commit: SQLite would fill the room with a part of what does not fit.
        (self._writer.dir / RESERVE).unlink(missing_ok=True)
        self.set(
            status=outcome.status,
            reason=self._reason(outcome),
            error=outcome.error,
            ended=self._started.now(),
            waiting_for=[],
            socket="",
        )
        with report_write_errors():
            self._writer.close()
        # Lists of many runs read the summary instead of every database.
        self.set(reason=self._reason(outcome), summary=Record(self._writer.dir).summary())

    def _reason(self, outcome: Outcome) -> str:
        if not self._writer.pending:
            return outcome.reason
        text = f"{outcome.reason}; the last measurements are missing: {self._refusal}"
        return text.removeprefix("; ")

    def _changes_with_job(self, job: Job) -> dict[str, Any]:
        """Return what changes with a job's state: a run starts when its job gets nodes.

        A job that ends without nodes was never started.
        """
        changes: dict[str, Any] = {"waiting_for": []}
        state = self._writer.state
        if state.started is None:
            if job.nodes:
                changes["started"] = job.starts
            else:
                changes["status"] = state.status
        return changes
