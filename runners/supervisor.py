"""The one process that owns a run: starts the launcher, hears the ranks, samples the hardware,
writes the record, and ends the whole process tree, however the run ends.

`python -m runners.supervisor RECORD` detaches itself and returns once it listens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from msgspec import structs

from runners import launchers
from runners.claims import Claim, Holder
from runners.connecting import Endpoint
from runners.endpoint import listening
from runners.errors import DistrainError
from runners.events import (
    Evaluation,
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    Hello,
    NonFinite,
    Notice,
    Phase,
    Stop,
    StopAt,
    Stopping,
    Window,
)
from runners.hardware import GpuSampler, RankSampler, sample_host
from runners.line import Line
from runners.processes import adopt_orphans, detached, end_descendants, owner_is_gone
from runners.record import Record, RecordWriter
from runners.state import read_meta
from runners.verdict import Evidence, broken, judge

LOOK_S = 0.5  # between two looks whether devices have become free
COMMIT_S = 0.5  # what a viewer lags behind
RANKS_A_SECOND = 1024  # that one commit a second can take: each rank's rows cost a page of the disk
STALL_LOOK_S = 1.0
SETTLE_S = 2.0  # after the first sign of trouble: long enough to hear who died of what
LAST_WORDS_S = 2.0
LEAVE_S = 30.0  # after the last rank has finished: for the launcher to notice
RESERVE = 1 << 16  # bytes kept aside, so that a full disk has room for how the run ended
GENTLY = [(signal.SIGTERM, 2.0), (signal.SIGKILL, 3.0)]
AT_ONCE = [(signal.SIGINT, 1.5), (signal.SIGTERM, 1.5), (signal.SIGKILL, 3.0)]


class Supervisor:
    """Runs one record from start to end; `run()` returns when nothing of it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = Record(folder)
        self.config = record.config
        plan = record.state.plan
        assert plan is not None
        self.plan = plan
        self.writer = RecordWriter(folder)
        self.claim: Holder | None = None
        self.seen = Evidence(
            world_size=plan.world_size,
            aborts=plan.backend in ("nccl", "horovod"),
            queued=self.writer.state.status == "queued",
        )
        self.links: dict[int, Line] = {}
        self.answers: dict[int, int] = {}
        self.host = socket.gethostname()
        self.pids: dict[int, int] = {}
        self.progress = time.monotonic()
        self.phases: dict[int, str] = {}
        self.stalled = False
        self._save = True
        self._unsaved: dict[str, Any] = {}
        self.trouble = asyncio.Event()
        self.end_now = asyncio.Event()
        self.all_finished = asyncio.Event()

    def make_claim(self) -> None:
        """Say what this run takes or waits for; one that does not queue starts without it too."""
        name = read_meta(self.folder).name
        try:
            self.claim = Holder(Claim.of(self.plan, self.folder, name, waiting=self.seen.queued))
        except (DistrainError, OSError) as error:
            if self.seen.queued:
                raise
            self._notice(f"queued runs will not see this one: {error}")

    async def may_start(self) -> bool:
        """Wait in the queue, if asked to; False where the run was stopped meanwhile."""
        if not self.seen.queued:
            return True
        assert self.claim is not None
        while obstacles := await asyncio.to_thread(self.claim.take):
            if obstacles != self.writer.state.waiting_for:
                self.set_state(waiting_for=obstacles)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.end_now.wait(), LOOK_S)
                break
        if self.end_now.is_set():
            return False
        self.seen.queued = False
        self.set_state(status="starting", started=time.time(), waiting_for=[])
        return True

    async def run(self, endpoint: Endpoint) -> None:
        self.set_state(status="running")
        log = (self.folder / "logs" / "launcher.log").open("wb")
        environment = launchers.environment(self.config, self.plan, self.folder, endpoint)
        launcher = await asyncio.create_subprocess_exec(
            *launchers.command(self.config, self.plan),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        for text in self.plan.notices:
            self._notice(text)
        jobs = (self._commit, self._sample, self._watch_for_stalls, self._watch_owner)
        helpers = [asyncio.create_task(_kept_up(job)) for job in jobs]
        done = asyncio.create_task(launcher.wait())
        origin = asyncio.create_task(asyncio.to_thread(_provenance, self.folder, environment))
        origin.add_done_callback(lambda task: self.set_state(provenance=task.result()))
        await self._until_over(done)
        await asyncio.to_thread(end_descendants, AT_ONCE if self.end_now.is_set() else GENTLY)
        self._launcher_ended(launcher.pid, await done)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(origin, *helpers, return_exceptions=True)
        await self._hear_the_last()
        self.seen.launcher_log = _tail(self.folder / "logs" / "launcher.log")

    async def _hear_the_last(self) -> None:
        """What the dead said last is still in the sockets."""
        deadline = time.monotonic() + LAST_WORDS_S
        await asyncio.sleep(0.05)
        while self.links and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _launcher_ended(self, pid: int, code: int) -> None:
        self.seen.launcher_code = code
        if self.config.launcher == "inline":
            self.seen.exits[0] = Exited(time=time.time(), rank=0, pid=pid, code=code)

    async def _until_over(self, done: asyncio.Task[int]) -> None:
        """Wait for the launcher to end, or for a reason to end it."""
        now, *_ = waits = [
            asyncio.create_task(event.wait())
            for event in (self.end_now, self.trouble, self.all_finished)
        ]
        await asyncio.wait([done, *waits], return_when=asyncio.FIRST_COMPLETED)
        patience = LEAVE_S if self.all_finished.is_set() else SETTLE_S
        if not self.end_now.is_set():
            # The launcher says how its ranks ended: worth a moment.
            await asyncio.wait([done, now], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        self.seen.launcher_killed = done.done() and done.result() < 0
        for wait in waits:
            wait.cancel()

    # --- what is heard ---------------------------------------------------------------------

    def heard(self, link: Line, event: Event) -> None:
        """One line of any connection, in order of arrival; most of them are windows."""
        match event:
            case Window():
                self.seen.steps[event.rank] = event.step
                self.progress, self.stalled = time.monotonic(), False
                self.writer.add(event)
            case Hello():
                self._greet(link, event)
            case Stop():
                self.stop(now=event.now)
            case Stopping():
                self.answers[event.rank] = event.step
                self._agree()
            case _:
                self._note(event)
                self.writer.add(event)

    def _greet(self, link: Line, hello: Hello) -> None:
        if hello.role == "rank":
            if not 0 <= hello.rank < self.plan.world_size:
                return link.refuse(f"there is no rank {hello.rank} in this run")
            if hello.rank in self.links:
                return link.refuse(f"rank {hello.rank} speaks already")
            link.rank = hello.rank
            self.links[hello.rank] = link
            if hello.pid and hello.host in ("", self.host):
                self.pids[hello.rank] = hello.pid  # elsewhere the number is another process's
            self.progress = time.monotonic()
            self.writer.add(structs.replace(hello, token=""))
            if self.seen.stop_asked:
                link.send(Stop())
        return None

    def _note(self, event: Event) -> None:
        """Keep what decides how the run goes on and why it ends."""
        match event:
            case Phase():
                self.phases[event.rank] = event.phase
                self.progress = time.monotonic()
            case Facts():
                self.set_state(facts=event)
                for text in event.notices:
                    self._notice(text)
            case Failure():
                self.seen.failures[event.rank] = (time.monotonic(), event)
                self.trouble.set()
            case Finished():
                self.seen.finished[event.rank] = event
                if len(self.seen.finished) == self.plan.world_size:
                    self.all_finished.set()
            case Exited():
                self.seen.exits[event.rank] = event
                if event.code:
                    self.trouble.set()
            case NonFinite():
                self._not_finite(event)
            case Evaluation():
                self.progress = time.monotonic()

    def _not_finite(self, event: NonFinite) -> None:
        if self.config.train.on_nan == "continue":
            self._notice(
                f"the loss of rank {event.rank} became {event.loss} at step {event.step}; "
                "training goes on"
            )
        elif self.seen.nonfinite is None or event.step < self.seen.nonfinite.step:
            # Through the gradients it reaches the others, who may be the first to say so.
            self.seen.nonfinite = event
            self._notice(f"the loss of rank {event.rank} became {event.loss} at step {event.step}")
            self.stop(save=False)

    def left(self, link: Line) -> None:
        """A connection has ended."""
        rank = link.rank
        if rank is None or self.links.get(rank) is not link:
            return
        del self.links[rank]
        self.pids.pop(rank, None)
        if rank not in self.seen.finished and rank not in self.seen.failures:
            self.seen.vanished[rank] = time.monotonic()
            self.trouble.set()

    def _notice(self, text: str) -> None:
        self.writer.add(Notice(time=time.time(), text=text))

    # --- a stop ----------------------------------------------------------------------------

    def stop(self, now: bool = False, save: bool = True) -> None:
        """End the run: all ranks at the same step with a checkpoint, or at once.

        The ranks' answers name the step that each is in; none goes past it until `StopAt`
        tells the furthest of them, which all can reach. In the queue there is nothing to wait for.
        """
        if now or self.seen.queued:
            self.seen.stopped_now = True
            self.end_now.set()
        elif not self.seen.stop_asked:
            self.seen.stop_asked, self._save = True, save
            for link in self.links.values():
                link.send(Stop())
            asyncio.get_running_loop().call_later(self.config.report.stop_timeout_s, self._overdue)
            self.set_state(status="stopping")

    def _agree(self) -> None:
        if len(self.answers) == self.plan.world_size:
            for link in self.links.values():
                link.send(StopAt(step=max(self.answers.values()) + 1, save=self._save))

    def _overdue(self) -> None:
        if not self.all_finished.is_set():
            self.seen.stop_overdue = True
            self.end_now.set()

    # --- meanwhile -------------------------------------------------------------------------

    async def _commit(self) -> None:
        pause = max(COMMIT_S, self.plan.world_size / RANKS_A_SECOND)
        while True:
            await asyncio.sleep(pause)
            self.set_state()
            with _disk_may_be_full():  # the batch is kept and tried again
                self.writer.commit()

    def set_state(self, **changes: Any) -> None:
        """Change run.json; where the disk refuses, with the next commit."""
        self._unsaved |= changes
        if self._unsaved:
            with _disk_may_be_full():
                self.writer.set_state(**self._unsaved)
                self._unsaved = {}

    async def _sample(self) -> None:
        ranks = RankSampler()
        with GpuSampler(self._gpu_uuids()) as gpus:
            while True:
                pids = dict(self.pids)
                for sample in await asyncio.to_thread(gpus.sample):
                    self.writer.add(sample)
                for rank_sample in await asyncio.to_thread(ranks.sample, pids):
                    self.writer.add(rank_sample)
                self.writer.add(sample_host())
                if self.claim:
                    self.claim.touch()
                await asyncio.sleep(self.config.report.sample_s)

    def _gpu_uuids(self) -> list[str]:
        return [device.uuid for device in self.plan.devices if device.kind == "cuda"]

    async def _watch_owner(self) -> None:
        while not owner_is_gone():
            await asyncio.sleep(STALL_LOOK_S)
        self._notice("what it was started for is gone")
        self.stop(now=True)

    async def _watch_for_stalls(self) -> None:
        while True:
            await asyncio.sleep(STALL_LOOK_S)
            self._look_for_stall()

    def _look_for_stall(self) -> None:
        silence = time.monotonic() - self.progress
        training = bool(self.phases) and set(self.phases.values()) == {"training"}
        if training and not self.stalled and silence > self.config.report.stall_s:
            self.stalled = True
            steps = {rank: self.seen.steps.get(rank, 0) for rank in range(self.plan.world_size)}
            late = min(steps, key=lambda rank: steps[rank])
            places = ", ".join(f"rank {rank} at step {step}" for rank, step in steps.items())
            behind = f"furthest behind is rank {late} ({places})"
            if len(set(steps.values())) == 1:
                behind = f"all ranks are at step {steps[late]}"
            self._notice(f"no step has ended for {silence:.0f} s; {behind}")


async def supervise(folder: Path, ready: Callable[[], None]) -> None:
    """Run a record from start to end; calls `ready` once ranks and viewers can connect."""
    supervisor = Supervisor(folder)
    writer, loop = supervisor.writer, asyncio.get_running_loop()
    reserve = folder / ".reserve"
    async with listening(supervisor, folder, supervisor.config.report.listen or "") as endpoint:
        reserve.write_bytes(bytes(RESERVE))
        supervisor.make_claim()
        started = None if supervisor.seen.queued else time.time()
        writer.set_state(started=started, socket=endpoint.local, **identity())
        ready()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, supervisor.stop)
        try:
            if await supervisor.may_start():
                await supervisor.run(endpoint)
            verdict = judge(supervisor.seen)
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            verdict = broken(error)
        finally:
            end_descendants(AT_ONCE)
    reserve.unlink(missing_ok=True)
    with _disk_may_be_full():
        writer.commit()
    supervisor.set_state(
        status=verdict.status,
        reason=verdict.reason,
        error=verdict.error,
        ended=time.time(),
        waiting_for=[],
        socket="",
    )
    with _disk_may_be_full():
        writer.close()
    # Lists of many runs read this instead of every database.
    supervisor.set_state(summary=Record(folder).summary())
    if supervisor.claim:
        supervisor.claim.close()


async def _kept_up(job: Callable[[], Awaitable[None]]) -> None:
    """What the supervisor does beside: its failure is told, and ends nothing else."""
    try:
        await job()
    except Exception:
        with suppress(OSError):
            traceback.print_exc()


@contextmanager
def _disk_may_be_full() -> Iterator[None]:
    try:
        yield
    except DistrainError as error:
        with suppress(OSError):  # the log lies on the same disk
            print(error, file=sys.stderr, flush=True)


def _provenance(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    from runners.provenance import provenance  # while the ranks start, not before

    return provenance(folder, environment)


def _tail(path: Path, size: int = 4000) -> str:
    return path.read_bytes()[-size:].decode(errors="replace")


def identity() -> dict[str, float]:
    """What tells this process from a later one of the same pid."""
    return {
        "supervisor_pid": os.getpid(),
        "supervisor_started": psutil.Process().create_time(),
    }


def main() -> int:
    """0 once a detached process listens, 1 if it could not."""
    folder = Path(sys.argv[1]).resolve()

    def work(ready: Callable[[], None]) -> int:
        adopt_orphans()
        try:
            asyncio.run(supervise(folder, ready))
        except DistrainError as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return detached(work, folder / "logs" / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
