"""`slurm`: the ranks are a job's. This process submits it, on the login node, tells how it stands
and ends with it; where it is told to end, or its supervisor is gone, it cancels the job first.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Literal

from msgspec import structs

from runners import words
from runners.connecting import Endpoint
from runners.errors import SlurmError
from runners.events import Event, Job, Notice, Requeue, Stop
from runners.launchers.parent import Parent
from runners.processes import OWNER, die_with_parent
from runners.record import Record
from runners.slurm import commands
from runners.slurm.job import Seen, ending, forever, look
from runners.slurm.script import LOG, SCRIPT, batch_script, options

ENDING = {signal.SIGINT, signal.SIGTERM}
# A signal of its own: while a parent of several threads dies, getppid() tells its number yet.
ORPHANED = signal.SIGUSR1
SILENT_S = 30.0  # after which it is told that Slurm does not answer
COMPLETING_S = 30.0
HEARSAY_S = 3.0  # for the supervisor to read what the job's journal tells
HURRY_S = 0.5  # between two looks at a job that was cancelled
TAIL = 2000  # characters
SLURMS = re.compile(r"(srun|slurmstepd\S*):")
# What holds on the login node only, and is not for the job.
HERE = ("DISTRAIN_SUPERVISOR", OWNER)


def main() -> int:
    # They are waited for, and no command that is under way is torn: it would not be known whether
    # the job was submitted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING, ORPHANED})
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    again, gives_way = threading.Event(), threading.Event()

    def heard(event: Event) -> None:
        match event:
            case Requeue():
                again.set()
            case Stop():
                gives_way.set()

    with Parent(on_event=heard) as parent:
        die_with_parent(number=ORPHANED)
        try:
            return Watch(parent, record, _submitted(record), again, gives_way).until_over()
        except SlurmError as error:
            print(error, flush=True)
            parent.say(Job(time=time.time(), id="", state="REFUSED", ended=str(error)))
            return 1


def _submitted(record: Record) -> str:
    """The id of the run's job; its script lies in the record. Raises SlurmError."""
    config, plan, folder = record.config, record.state.plan, record.dir
    assert plan is not None
    if (known := record.state.job) and known.id:
        return known.id  # its supervisor was gone for a while
    script, endpoint = folder / SCRIPT, Endpoint("", os.environ["DISTRAIN_SOCKET"])
    if script.exists() and (job := commands.submitted(script)):
        return job  # of a launcher that was killed before it could tell
    script.write_text(batch_script(config, plan, folder, endpoint))
    passed_on = {name: value for name, value in os.environ.items() if name not in HERE}
    return commands.submit(script, options(config, plan, folder), passed_on)


class Watch:
    """Follows one job to its end, through every time that it is queued again."""

    def __init__(
        self,
        parent: Parent,
        record: Record,
        job: str,
        again: threading.Event,
        gives_way: threading.Event,
    ) -> None:
        self._parent, self._record, self._id = parent, record, job
        self._again, self._gives_way = again, gives_way
        self._config = record.config.slurm
        self._seen: Seen | None = None
        self._cancelled, self._patience = False, 0.0
        self._paused = -1  # the attempt whose ranks were asked to save and stop
        self._silent_since: float | None = None
        self._silence_told = False
        self._told_in_vain = ""

    def until_over(self) -> int:
        """0 where the job completed, else 1; raises SlurmError where its end cannot be told."""
        while True:
            seen = self._look()
            if seen and seen.over and not self._goes_on(seen):
                return self._end(seen)
            if seen:
                self._tell(seen)
                if seen.job.state == "COMPLETING" and self._has_waited_enough():
                    return self._end(seen)
            self._mind_the_time()
            if told := signal.sigtimedwait({*ENDING, ORPHANED}, self._pause()):
                if told.si_signo == ORPHANED and self._record.recorded_beside:
                    return 1
                self._cancelled = True
                self._patience = time.monotonic() + COMPLETING_S
            if self._cancelled:
                self._cancel()
            elif self._again.is_set():
                self._again.clear()
                self._requeue()

    def _has_waited_enough(self) -> bool:
        """Of a cancelled job, nodes that answer nobody may keep the end back for very long."""
        return self._cancelled and time.monotonic() > self._patience

    def _look(self) -> Seen | None:
        """None where Slurm does not answer: it may again, and the job goes on without it."""
        try:
            seen = look(self._id)
        except SlurmError as error:
            self._silence(str(error))
            return None
        if self._silence_told:
            self._notice("Slurm answers again", "info")
        self._silent_since, self._silence_told = None, False
        return seen

    def _silence(self, why: str) -> None:
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if not self._silence_told and now - self._silent_since >= SILENT_S:
            self._silence_told = True
            self._notice(f"Slurm does not answer, the job goes on unseen: {why}")

    def _tell(self, seen: Seen) -> None:
        before = structs.replace(self._seen.job, time=seen.job.time) if self._seen else None
        self._seen = seen
        if seen.job != before:
            self._parent.say(seen.job)
        if before is None or (before.state, before.reason) != (seen.job.state, seen.job.reason):
            reason = f" ({seen.job.reason})" if seen.job.reason else ""
            print(f"job {self._id}: {seen.job.state}{reason}", flush=True)
        in_vain = forever(seen)
        if in_vain and in_vain != self._told_in_vain:
            self._notice(in_vain)
        self._told_in_vain = in_vain

    def _mind_the_time(self) -> None:
        """Have the ranks save a checkpoint and stop, shortly before Slurm would end them."""
        left = self._until_warning()
        if left is None or left > 0:
            return
        assert self._seen is not None
        job, again = self._seen.job, self._config.requeue
        assert job.ends is not None
        self._paused = job.restarts
        until = words.duration(job.ends - time.time())
        then = "stop; the job is queued again" if again else "stop; resume the run to go on"
        self._notice(f"the job's time is up in {until}: its ranks save a checkpoint and {then}")
        self._parent.say(Stop(again=again))

    def _until_warning(self) -> float | None:
        """Seconds, None where nothing is to be said; a short job trains half its time at least."""
        job = self._seen.job if self._seen else None
        if job is None or job.state != "RUNNING" or job.restarts == self._paused:
            return None
        if job.starts is None or job.ends is None or not self._config.warn_s:
            return None
        return job.ends - min(self._config.warn_s, (job.ends - job.starts) / 2) - time.time()

    def _pause(self) -> float:
        if self._cancelled:
            return HURRY_S
        left = self._until_warning()
        return self._config.poll_s if left is None else max(0.0, min(self._config.poll_s, left))

    def _goes_on(self, seen: Seen) -> bool:
        """Queue a job again whose time was up; nodes that fail and jobs that come first are
        Slurm's own business.
        """
        unwanted = self._cancelled or self._record.state.status == "stopping"
        if unwanted or not self._config.requeue or not self._has_paused(seen):
            return False
        try:
            commands.requeue(self._id)
        except SlurmError as error:
            self._notice(f"the job was not queued again: {error}")
            return False
        self._gives_way.clear()
        return True

    def _has_paused(self, seen: Seen) -> bool:
        """Whether the job is over because its time was, or because Slurm told it to end."""
        match seen.job.state:
            case "TIMEOUT":
                return True
            case "COMPLETED" | "FAILED" if self._paused == seen.job.restarts:
                return True
            case "COMPLETED" | "FAILED" if self._record.recorded_beside:
                return self._gives_way.wait(HEARSAY_S)
            case "COMPLETED" | "FAILED":
                return self._gives_way.is_set()
        return False

    def _requeue(self) -> None:
        try:
            commands.requeue(self._id)
        except SlurmError as error:  # it waits already: Slurm was quicker
            print(error, flush=True)

    def _cancel(self) -> None:
        try:
            commands.cancel(self._id)
        except SlurmError as error:  # asked again with the next look
            print(error, flush=True)

    def _end(self, seen: Seen) -> int:
        told = "" if self._cancelled else ending(seen)
        self._tell(seen._replace(job=structs.replace(seen.job, ended=told)))
        told = told or f"job {self._id} was cancelled"
        if seen.job.state == "FAILED":
            log = self._log()
            print(log, flush=True)
            told = "; ".join(filter(None, [last_words(log), told]))
        print(told, flush=True)
        return 0 if seen.job.state == "COMPLETED" else 1

    def _log(self) -> str:
        """The last of what srun and the node agents printed."""
        log = self._record.dir / "logs" / LOG
        return log.read_text(errors="replace")[-TAIL:].strip() if log.exists() else ""

    def _notice(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        print(text, flush=True)
        self._parent.say(Notice(time=time.time(), text=text, level=level))


def last_words(log: str) -> str:
    """The last line that is not Slurm's own: how a step ended it tells, and not why."""
    lines = [line for line in log.splitlines() if line.strip() and not SLURMS.match(line)]
    return words.line(lines[-1]) if lines else ""


if __name__ == "__main__":
    sys.exit(main())
