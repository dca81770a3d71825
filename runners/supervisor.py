"""The one process that owns a run: starts the launcher, hears the ranks, samples the hardware,
writes the record, and ends the whole process tree, however the run ends.

`python -m runners.supervisor RECORD` detaches itself and returns once it listens.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from msgspec import structs

from runners import launchers, rendezvous, words
from runners.claims import Claim, Holder
from runners.connecting import TOKEN, Endpoint, given_token
from runners.conversation import Conversation
from runners.endpoint import listening
from runners.errors import DistrainError, SlurmError
from runners.events import Ended, Exited, Job, Notice, Stop
from runners.hardware import GpuSampler, RankSampler, sample_host
from runners.journal import Reader
from runners.network import listening_address, sockets
from runners.processes import (
    AT_ONCE,
    GENTLY,
    adopt_orphans,
    detached,
    end_descendants,
    more_descriptors,
    owner_is_gone,
)
from runners.record import Record, RecordWriter
from runners.slurm import commands
from runners.slurm.job import ENDED, UNKNOWN
from runners.slurm.nodes import own_address
from runners.slurm.recording import ask_job
from runners.slurm.script import SCRIPT
from runners.state import is_supervised, read_meta, read_state
from runners.verdict import Verdict, broken, judge
from runners.writer import disk_may_be_full

LOOK_S = 0.5  # between two looks whether devices have become free
COMMIT_S = 0.5  # what a viewer lags behind
RANKS_A_SECOND = 1024  # that one commit a second can take: each rank's rows cost a page of the disk
STALL_LOOK_S = 1.0
JOURNAL_S = 1.0
MOST_WAITING = 20_000  # rows of a long journal
SETTLE_LOOK_S = 0.1
ANEW = 3  # times that a launcher is started again which was killed while its job goes on
RESTART_S = 60.0  # after the first sign of trouble, for ranks that are started anew
SETTLE_S = 2.0  # after the first sign of trouble: long enough to hear who died of what
LAST_WORDS_S = 2.0
LEAVE_S = 30.0  # after the last rank has finished: for the launcher to notice
HALF_DEAD_S = 5.0  # for what was killed
# The launcher cancels the job and waits for its end; Slurm may be slow to answer both times.
CANCEL = [(signal.SIGTERM, 180.0), (signal.SIGKILL, 3.0)]
# What a launcher that was killed has asked Slurm last: its sbatch may just queue the job.
FINISH = [(signal.SIGCONT, commands.PATIENCE_S), (signal.SIGKILL, 3.0)]
SUBMITTING = "the job is being submitted to Slurm"
RESERVE = 1 << 16  # bytes kept aside, so that a full disk has room for how the run ended


class Supervisor:
    """Runs one record from start to end; `run()` returns when nothing of it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = Record(folder)
        self.journal = Reader(folder)
        self.config = record.config
        plan = record.state.plan
        assert plan is not None
        self.plan = plan
        self.writer = RecordWriter(folder, beside=record.recorded_beside)
        self.claim: Holder | None = None
        self._unsaved: dict[str, Any] = {}
        self.talk = Conversation(
            self.config, plan, self.writer, self.set_state, socket.gethostname()
        )

    def listens_at(self) -> str:
        """HOST or HOST:PORT for those on other hosts; empty where nobody is."""
        if chosen := self.config.report.listen or self.config.dist.rendezvous:
            return chosen
        if self.plan.tasks:
            return rendezvous.report_address(self.config)
        if self.plan.scheduled:
            return self._towards_nodes()
        return listening_address() if self._hosts_join else ""

    def _towards_nodes(self) -> str:
        """Empty where nodes do not reach us, so that their job records the run."""
        slurm = self.config.slurm
        if slurm.report == "files":
            return ""
        try:
            return own_address(slurm.partition)
        except DistrainError as error:
            if slurm.report == "tcp" or isinstance(error, SlurmError):
                raise
            self.talk.notice(f"where nodes reach this host is not known: {error}")
            return ""

    def known_token(self) -> str:
        """What hosts that know where to join know already; empty where a new one is to be made."""
        return given_token() if self.plan.tasks or self.config.dist.rendezvous else ""

    @property
    def _hosts_join(self) -> bool:
        return self.plan.spread and not self.plan.scheduled

    def _sockets(self, endpoint: Endpoint) -> dict[str, str]:
        """What the ranks of this host will find of the interface; its node chooses the same."""
        if not self._hosts_join:
            return {}
        leads = endpoint.remote.removeprefix("tcp:")
        if self.plan.tasks:
            leads = rendezvous.towards(rendezvous.place(self.config), leads)
        return sockets(self.config.dist.interface, leads).variables

    def take_up(self) -> None:
        """Know again how a run stands whose supervisor was killed, and go on from there."""
        for item in islice(self.journal.news(), self.writer.merged):
            self.talk.replay(item)
            self.writer.forget()
        self.hear_journal()
        said = Notice(time=time.time(), level="info", text="taken up: its supervisor was gone")
        self.writer.add(said)
        with disk_may_be_full():
            self.writer.commit()
        if self.talk.is_stopping:
            self.talk.stop()

    def make_claim(self) -> None:
        """Say what this run takes or waits for; one that does not queue starts without it too."""
        name = read_meta(self.folder).name
        try:
            self.claim = Holder(
                Claim.of(self.plan, self.folder, name, waiting=self.talk.seen.queued)
            )
        except (DistrainError, OSError) as error:
            if self.talk.seen.queued:
                raise
            self.talk.notice(f"queued runs will not see this one: {error}")

    async def may_start(self) -> bool:
        """Wait in the queue, if asked to; False where the run was stopped meanwhile."""
        if not self.talk.seen.queued:
            return True
        assert self.claim is not None
        while obstacles := await asyncio.to_thread(self.claim.take):
            if obstacles != self.writer.state.waiting_for:
                self.set_state(waiting_for=obstacles)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.talk.end_now.wait(), LOOK_S)
                break
        if self.talk.end_now.is_set():
            return False
        self.talk.seen.queued = False
        started = self.writer.state.started if self.plan.scheduled else time.time()
        self.set_state(status="starting", started=started, waiting_for=[])
        return True

    async def run(self, endpoint: Endpoint) -> None:
        if not self.talk.is_stopping:
            if self.plan.scheduled and self.writer.state.job is None:
                self.set_state(status="queued", waiting_for=[SUBMITTING])
            else:
                self.set_state(status="running")
        environment = launchers.environment(self.config, self.plan, self.folder, endpoint)
        launcher = await self._start_launcher(environment)
        for text in [] if self.writer.taken_up else self.plan.notices:
            self.talk.notice(text)
        jobs = (
            self._commit,
            self._sample,
            self._watch_for_stalls,
            self._watch_owner,
            self._read_journal,
            partial(self._wait_for_hosts, endpoint),
        )
        helpers = [asyncio.create_task(_kept_up(job)) for job in jobs]
        seen = environment | self._sockets(endpoint)
        origin = asyncio.create_task(_kept_up(partial(self._tell_origin, seen)))
        launcher = await self._until_the_last_is_over(launcher, environment)
        await asyncio.to_thread(end_descendants, self._how_to_end())
        self._launcher_ended(launcher.pid, await launcher.wait())
        if self._leaves_a_job(launcher):
            self._without_launcher(await asyncio.to_thread(self._cancel_job))
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(origin, *helpers, return_exceptions=True)
        await self._hear_the_last()
        self.talk.seen.launcher_log = _tail(self.folder / "logs" / "launcher.log")

    async def _tell_origin(self, environment: dict[str, str]) -> None:
        if not self.writer.state.provenance:  # who takes it up may be elsewhere
            found = await asyncio.to_thread(_provenance, self.folder, environment)
            self.set_state(provenance=found)

    async def _start_launcher(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        with (self.folder / "logs" / "launcher.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *launchers.command(self.config, self.plan),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Before it can say what to do about them, they would end it but not its job.
                preexec_fn=_hold_signals if self.plan.scheduled else None,
            )

    async def _until_the_last_is_over(
        self, launcher: asyncio.subprocess.Process, environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        """Of the launcher and those that take its place: one that was killed may leave a job."""
        await self._until_over(launcher)
        for _ in range(ANEW):
            if not self._leaves_a_job(launcher) or self.talk.end_now.is_set():
                break
            self.talk.notice("the launcher was killed; another goes on watching the job")
            await asyncio.to_thread(end_descendants, FINISH)
            launcher = await self._start_launcher(environment)
            await self._until_over(launcher)
        return launcher

    def _leaves_a_job(self, launcher: asyncio.subprocess.Process) -> bool:
        """Whether it was killed, and nobody watches a job that may go on."""
        job, code = self.talk.seen.job, launcher.returncode
        over = job is not None and (job.state in {*ENDED, UNKNOWN} or not job.id)
        return self.plan.scheduled and code is not None and code < 0 and not over

    def _cancel_job(self) -> Job:
        job = self.talk.seen.job or Job(time=time.time(), id="", state="REFUSED")
        try:
            if known := job.id or commands.submitted(self.folder / SCRIPT):
                commands.cancel(known)
                job = structs.replace(job, id=known, state="CANCELLED")
            then = f"job {known} was cancelled" if known else "there is no job"
        except SlurmError as error:
            then = f"its job may go on: {error}"
        return structs.replace(job, time=time.time(), ended=f"the launcher was killed; {then}")

    def _without_launcher(self, job: Job) -> None:
        """What became of a job is why the run ends, unless it was to end already."""
        if self.talk.end_now.is_set() or not self.talk.seen.launcher_killed:
            self.talk.notice(job.ended)
            job = structs.replace(job, ended="")
        self.talk.replay(job)

    def _how_to_end(self) -> list[tuple[signal.Signals, float]]:
        if self.plan.scheduled:
            return CANCEL
        return AT_ONCE if self.talk.end_now.is_set() else GENTLY

    async def _hear_the_last(self) -> None:
        """What the dead said last is still in the sockets."""
        deadline = time.monotonic() + LAST_WORDS_S
        await asyncio.sleep(0.05)
        while (self.talk.links or self.talk.nodes.at_work) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self.hear_journal()

    async def _read_journal(self) -> None:
        while self.plan.scheduled:
            self.hear_journal()
            self._pass_on_a_stop()
            await asyncio.sleep(JOURNAL_S)

    def _pass_on_a_stop(self) -> None:
        """To a job that hears its ranks itself, until they have left."""
        talk = self.talk
        if self.journal.there and talk.seen.stop_asked and not talk.all_finished.is_set():
            with suppress(OSError):
                ask_job(self.folder, Stop(again=not talk.is_stopping))

    def hear_journal(self) -> None:
        """What a job tells that does not reach us otherwise."""
        for item in self.journal.news():
            self.talk.replay(item)
            self.writer.merged = self.journal.entries
            if self.writer.waiting > MOST_WAITING:
                with disk_may_be_full():
                    self.writer.commit()

    def _launcher_ended(self, pid: int, code: int) -> None:
        self.talk.seen.launcher_code = code
        if self.config.launcher == "inline":
            self.talk.seen.exits[0] = Exited(time=time.time(), rank=0, pid=pid, code=code)

    async def _until_over(self, launcher: asyncio.subprocess.Process) -> None:
        """Wait for the launcher to end, or for a reason to end it."""
        talk, done = self.talk, asyncio.create_task(launcher.wait())
        while not (done.done() or talk.end_now.is_set()):
            signs = (talk.end_now, talk.trouble, talk.all_finished)
            waits = [asyncio.create_task(event.wait()) for event in signs]
            await asyncio.wait([done, *waits], return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if not await self._goes_on(done):
                break
        talk.seen.launcher_killed = done.done() and done.result() < 0

    async def _goes_on(self, done: asyncio.Task[int]) -> bool:
        """Give the launcher a moment to say how its ranks ended, and longer where it may start
        them anew; True where it has, or there was no sign of an end.
        """
        talk, since = self.talk, time.monotonic()
        while not (done.done() or talk.end_now.is_set()):
            if not (talk.trouble.is_set() or talk.all_finished.is_set()):
                return True
            if talk.in_the_queue and not talk.complete:  # as long as it takes
                since = time.monotonic()
            if time.monotonic() > since + self._patience():
                return False
            await asyncio.wait([done], timeout=SETTLE_LOOK_S)
        return False

    def _patience(self) -> float:
        """Seconds from the first sign of an end."""
        talk = self.talk
        if talk.complete or not talk.restarts:
            return LEAVE_S if talk.all_finished.is_set() else SETTLE_S
        if talk.seen.silent and self.plan.scheduled and not self.config.slurm.requeue:
            return SETTLE_S
        return RESTART_S + (self.config.slurm.poll_s if self.plan.scheduled else 0.0)

    # --- meanwhile -------------------------------------------------------------------------

    async def _commit(self) -> None:
        pause = max(COMMIT_S, self.plan.world_size / RANKS_A_SECOND)
        while True:
            await asyncio.sleep(pause)
            if self.talk.links and self.writer.state.status == "queued":  # before Slurm was asked
                self.set_state(status="running")
            self.set_state()
            with disk_may_be_full():  # the batch is kept and tried again
                self.writer.commit()

    def set_state(self, **changes: Any) -> None:
        """Change run.json; where the disk refuses, with the next commit."""
        self._unsaved |= changes
        if isinstance(job := changes.get("job"), Job):
            self._unsaved |= self._scheduled(job)
        if self._unsaved:
            with disk_may_be_full():
                self.writer.set_state(**self._unsaved)
                self._unsaved = {}

    def _scheduled(self, job: Job) -> dict[str, Any]:
        """A run starts once its job does, which one that ends without nodes never did."""
        state = self.writer.state
        changes: dict[str, Any] = {"waiting_for": []}
        if state.started is None:
            changes |= {"started": job.starts} if job.nodes else {"status": state.status}
        return changes

    async def _sample(self) -> None:
        ranks = RankSampler()
        with GpuSampler(self._gpu_uuids()) as gpus:
            while True:
                pids = dict(self.talk.pids)
                for sample in await asyncio.to_thread(gpus.sample):
                    self.writer.add(sample)
                for rank_sample in await asyncio.to_thread(ranks.sample, pids):
                    self.writer.add(rank_sample)
                if not self.plan.scheduled:
                    self.writer.add(sample_host())
                if self.claim:
                    self.claim.touch()
                await asyncio.sleep(self.config.report.sample_s)

    def _gpu_uuids(self) -> list[str]:
        return [device.uuid for device in self.plan.devices if device.kind == "cuda"]

    async def _wait_for_hosts(self, endpoint: Endpoint) -> None:
        """Hosts that never come must not keep those that did."""
        if not self._hosts_join:
            return
        deadline = time.monotonic() + self.config.dist.join_timeout_s
        while (missing := self.talk.nodes.missing) and time.monotonic() < deadline:
            told = self._awaited(missing, endpoint)
            if told != self.writer.state.waiting_for:
                self.set_state(waiting_for=told)
            await asyncio.sleep(STALL_LOOK_S)
        self.set_state(waiting_for=[])
        if missing:
            hosts = words.things(len(missing), "host")
            self.talk.seen.missing = words.ranks(missing) if self.plan.tasks else hosts
            self.talk.trouble.set()

    def _awaited(self, missing: list[int], endpoint: Endpoint) -> list[str]:
        """Who has still to come, in sentences: the first comes by itself."""
        others = [number for number in missing if number] or missing
        if self.plan.tasks:
            return [f"{words.ranks(others)} of {self.plan.world_size} to come"]
        place, token = endpoint.remote.removeprefix("tcp:"), self.folder / TOKEN
        waits = f"{len(others)} of {words.things(self.plan.nodes, 'host')} to join"
        command = f"distrain join {place} --token-file {TOKEN}"
        return [f"{waits}; on each: {command}", f"{TOKEN} is a copy of {token}"]

    async def _watch_owner(self) -> None:
        while not owner_is_gone():
            await asyncio.sleep(STALL_LOOK_S)
        self.talk.notice("what it was started for is gone")
        self.talk.stop(now=True)

    async def _watch_for_stalls(self) -> None:
        while True:
            await asyncio.sleep(STALL_LOOK_S)
            self.talk.look_for_stall()

    def close(self, verdict: Verdict) -> None:
        """Write the last of the record, and give free what the run had."""
        with disk_may_be_full():
            self.writer.commit()
        self.set_state(
            status=verdict.status,
            reason=verdict.reason,
            error=verdict.error,
            ended=time.time(),
            waiting_for=[],
            socket="",
        )
        with disk_may_be_full():
            self.writer.close()
        # Lists of many runs read this instead of every database.
        self.set_state(summary=Record(self.folder).summary())
        if self.claim:
            self.claim.close()


async def supervise(folder: Path, ready: Callable[[], None]) -> None:
    """Run a record from start to end; calls `ready` once ranks and viewers can connect."""
    supervisor = Supervisor(folder)
    writer, reserve = supervisor.writer, folder / ".reserve"
    if writer.taken_up:
        writer.set_state(socket="", **identity())  # nobody else is to take it up meanwhile
        supervisor.take_up()
    async with listening(
        supervisor.talk, folder, supervisor.listens_at(), supervisor.known_token()
    ) as endpoint:
        reserve.write_bytes(bytes(RESERVE))
        supervisor.make_claim()
        waits = supervisor.talk.seen.queued or supervisor.plan.scheduled
        started = writer.state.started or (None if waits else time.time())
        writer.set_state(started=started, socket=endpoint.local, **identity())
        ready()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.talk.stop)
        try:
            if await supervisor.may_start():
                await supervisor.run(endpoint)
            verdict = judge(supervisor.talk.seen)
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            verdict = broken(error)
        finally:
            end_descendants(AT_ONCE)
        supervisor.talk.nodes.tell(Ended(status=verdict.status, reason=verdict.reason))
    reserve.unlink(missing_ok=True)
    supervisor.close(verdict)


async def _kept_up(job: Callable[[], Awaitable[None]]) -> None:
    """What the supervisor does beside: its failure is told, and ends nothing else."""
    try:
        await job()
    except Exception:
        with suppress(OSError):
            traceback.print_exc()


def _hold_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


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


def _lock(descriptor: int, folder: Path) -> None:
    """Raises BlockingIOError where another supervises; one that was killed may be half dead yet."""
    deadline = time.monotonic() + HALF_DEAD_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_supervised(read_state(folder)) or time.monotonic() > deadline:
                raise
        time.sleep(SETTLE_LOOK_S)


def main() -> int:
    """0 once a detached process listens, 1 if it could not."""
    folder = Path(sys.argv[1]).resolve()

    def work(ready: Callable[[], None]) -> int:
        adopt_orphans()
        more_descriptors()
        alone = os.open(folder, os.O_RDONLY)
        try:
            _lock(alone, folder)
            asyncio.run(supervise(folder, ready))
        except BlockingIOError:
            print("there is a supervisor of this run already", file=sys.stderr)
            return 1
        except DistrainError as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return detached(work, folder / "logs" / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
