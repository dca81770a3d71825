"""Watches one job of Slurm to its end, through every time that it is requeued."""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import suppress
from typing import Literal

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm import commands
from distrain.runners.launchers.slurm.endings import describe_end, why_never_starts
from distrain.runners.launchers.slurm.job import JobInfo, query_job
from distrain.runners.launchers.slurm.script import LOG
from distrain.runners.launchers.supervisor_link import SIGTERM_REASON, SupervisorLink
from distrain.runners.protocol.events import Event, Notice, Requeue, Stop
from distrain.runners.records.logs import read_end
from distrain.runners.records.reader import Record

END_SIGNALS = {signal.SIGINT, signal.SIGTERM}
# A signal of its own: while a parent with several threads dies, getppid() still returns its pid.
ORPHANED = signal.SIGUSR1
SILENCE_S = 30.0  # after which a notice says that Slurm does not answer
COMPLETING_S = 30.0
JOURNAL_S = 3.0  # for the supervisor to read what the job's journal contains
CANCEL_POLL_S = 0.5
LOG_TAIL = 2000  # bytes
CONSEQUENCES = re.compile(rf"(srun|slurmstepd\S*):|{SIGTERM_REASON}$")


class SupervisorRequests:
    """What the supervisor has asked of this process, from the reporting thread."""

    def __init__(self) -> None:
        self.requeue = threading.Event()
        self.preempted = threading.Event()  # Slurm has asked the ranks to end

    def receive(self, event: Event) -> None:
        match event:
            case Requeue():
                self.requeue.set()
            case Stop():
                self.preempted.set()


class JobWatch:
    """Reports every change of a job to the supervisor until the job is over.

    It warns the ranks before the time limit, requeues the job if the config wants that, and cancels
    it when this process is to end. END_SIGNALS and ORPHANED must be blocked.
    """

    def __init__(
        self, link: SupervisorLink, record: Record, job: str, requests: SupervisorRequests
    ) -> None:
        self._link = link
        self._record = record
        self._config = record.config.slurm
        self._id = job
        self._requests = requests
        self._info: JobInfo | None = None
        self._is_cancelled = False
        self._cancel_deadline = 0.0
        self._warned_attempt = -1  # the attempt whose ranks were asked to stop
        self._silent_since: float | None = None
        self._is_silence_reported = False
        self._reported_obstacle = ""

    def run(self) -> int:
        """Return 0 if the job completed, else 1. Raises SlurmError where its end is unknown."""
        while True:
            info = self._query()
            if info and info.is_over and not self._requeue_if_wanted(info):
                return self._finish(info)
            if info:
                self._report(info)
                if info.job.state == "COMPLETING" and self._has_cancelling_timed_out():
                    return self._finish(info)
            self._warn_before_limit()
            if received := signal.sigtimedwait({*END_SIGNALS, ORPHANED}, self._pause()):
                if received.si_signo == ORPHANED and self._record.has_journal:
                    return 1  # the job goes on, and another supervisor may follow it
                self._is_cancelled = True
                self._cancel_deadline = time.monotonic() + COMPLETING_S
            if self._is_cancelled:
                self._cancel()
            elif self._requests.requeue.is_set():
                self._requests.requeue.clear()
                self._requeue()

    def _has_cancelling_timed_out(self) -> bool:
        """Return whether a cancelled job is held up too long by nodes that do not answer."""
        return self._is_cancelled and time.monotonic() > self._cancel_deadline

    def _pause(self) -> float:
        """Return the seconds until the next query."""
        if self._is_cancelled:
            return CANCEL_POLL_S
        left = self._seconds_until_warning()
        if left is None:
            return self._config.poll_s
        return max(0.0, min(self._config.poll_s, left))

    # --- the state of the job --------------------------------------------------------------

    def _query(self) -> JobInfo | None:
        """Return the job's state; None while Slurm does not answer: the job goes on without it."""
        try:
            info = query_job(self._id)
        except SlurmError as error:
            self._note_silence(str(error))
            return None
        if self._is_silence_reported:
            self._notice("Slurm answers again", "info")
        self._silent_since = None
        self._is_silence_reported = False
        return info

    def _note_silence(self, reason: str) -> None:
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if not self._is_silence_reported and now - self._silent_since >= SILENCE_S:
            self._is_silence_reported = True
            self._notice(f"Slurm does not answer; the job continues unobserved: {reason}")

    def _report(self, info: JobInfo) -> None:
        job = info.job
        before = structs.replace(self._info.job, time=job.time) if self._info else None
        self._info = info
        if job != before:
            self._link.send(job)
        if before is None or (before.state, before.reason) != (job.state, job.reason):
            reason = f" ({job.reason})" if job.reason else ""
            print(f"job {self._id}: {job.state}{reason}", flush=True)
        obstacle = why_never_starts(info)
        if obstacle and obstacle != self._reported_obstacle:
            self._notice(obstacle)
        self._reported_obstacle = obstacle

    # --- the time limit and requeueing ----------------------------------------------------

    def _warn_before_limit(self) -> None:
        """Stop the ranks with a checkpoint shortly before Slurm would end them."""
        left = self._seconds_until_warning()
        if left is None or left > 0:
            return
        assert self._info is not None
        job = self._info.job
        assert job.ends is not None
        self._warned_attempt = job.restarts
        time_left = formatting.duration(job.ends - time.time())
        if self._config.requeue:
            consequence = "the job is requeued"
        else:
            consequence = "resume the run to continue"
        self._notice(
            f"the job reaches its time limit in {time_left}: its ranks save a checkpoint and stop; "
            f"{consequence}"
        )
        self._link.send(Stop(restart=self._config.requeue))

    def _seconds_until_warning(self) -> float | None:
        """Return the seconds until the ranks are warned; None if they are not warned.

        The warning never comes before half of the job's time.
        """
        job = self._info.job if self._info else None
        if job is None or job.state != "RUNNING" or job.restarts == self._warned_attempt:
            return None
        if job.starts is None or job.ends is None or not self._config.warn_s:
            return None
        warning_s = min(self._config.warn_s, (job.ends - job.starts) / 2)
        return job.ends - warning_s - time.time()

    def _requeue_if_wanted(self, info: JobInfo) -> bool:
        """Requeue a job whose time was up or that was preempted; return whether it is queued.

        After failures of nodes Slurm requeues jobs itself.
        """
        is_unwanted = self._is_cancelled or self._record.state.status == "stopping"
        if is_unwanted or not self._config.requeue or not self._was_interrupted(info):
            return False
        try:
            commands.requeue(self._id)
        except SlurmError as error:
            self._notice(f"the job could not be requeued: {error}")
            return False
        self._requests.preempted.clear()
        return True

    def _was_interrupted(self, info: JobInfo) -> bool:
        """Return whether the job is over because of its time limit or because of Slurm."""
        match info.job.state:
            case "TIMEOUT":
                return True
            case "COMPLETED" | "FAILED":
                if self._warned_attempt == info.job.restarts:
                    return True
                if self._record.has_journal:
                    return self._requests.preempted.wait(JOURNAL_S)
                return self._requests.preempted.is_set()
        return False

    def _requeue(self) -> None:
        try:
            commands.requeue(self._id)
        except SlurmError as error:  # Slurm has already requeued it
            print(error, flush=True)

    # --- the end -------------------------------------------------------------------------

    def _cancel(self) -> None:
        try:
            commands.cancel(self._id)
        except SlurmError as error:  # tried again after the next query
            print(error, flush=True)

    def _finish(self, info: JobInfo) -> int:
        """Report how the job ended; what is printed last becomes the reason of a failed run."""
        ended = "" if self._is_cancelled else describe_end(info)
        self._report(info._replace(job=structs.replace(info.job, ended=ended)))
        text = ended or f"job {self._id} was cancelled"
        if info.job.state == "FAILED":
            log = self._log_tail()
            print(log, flush=True)
            if cause := failure_line(log):
                text = f"{cause}; {text}"
        print(text, flush=True)
        return 0 if info.job.state == "COMPLETED" else 1

    def _log_tail(self) -> str:
        """Return the last lines of what srun and the node agents printed."""
        with suppress(OSError):
            log = read_end(self._record.dir / "logs" / LOG, LOG_TAIL)
            return log.decode(errors="replace").strip()
        return ""

    def _notice(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        print(text, flush=True)
        self._link.send(Notice(time=time.time(), text=text, level=level))


def failure_line(log: str) -> str:
    """Return the last line that may say why a job failed; empty if there is none.

    Slurm's own lines say how a step ended. Agents that are ended because another one failed may
    print after it.
    """
    lines = [line for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if not CONSEQUENCES.match(line)]
    return formatting.single_line(causes[-1]) if causes else ""
