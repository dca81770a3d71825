"""The launcher of a run: how it is started, awaited, restarted and ended."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import structs

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers import command
from distrain.runners.launchers.batch_scheduler import BatchScheduler
from distrain.runners.protocol.events import Exited, Job
from distrain.runners.records import job_status
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.system.processes import AT_ONCE, GENTLY, descendants, end_descendants

MAX_RESTARTS = 3  # of a launcher that is killed while its job goes on
CHECK_S = 0.1
# Seconds from the first sign of an end until the launcher is ended.
SETTLE_S = 2.0  # long enough to learn how each rank ended
RESTART_S = 60.0  # where ranks may be restarted
SCRIPT_S = 30.0  # for the other ranks of a script that has failed on one
EXIT_S = 5.0  # after the last of them: agents of several hosts wait longer for one that has failed
END_SCRIPT = [(signal.SIGTERM, SCRIPT_S), (signal.SIGKILL, 3.0)]
LEAVE_S = 30.0  # after the last rank has finished: for the launcher to notice


class LauncherProcess:
    """Runs the launcher until all ranks have ended or there is a reason to end them.

    A launcher that is killed may leave a scheduler's job behind. It is then restarted to follow
    the job, up to MAX_RESTARTS times; after that the job is cancelled.
    """

    def __init__(
        self,
        config: RunConfig,
        plan: Plan,
        folder: Path,
        coordinator: Coordinator,
        scheduler: BatchScheduler | None,
    ) -> None:
        self._config = config
        self._plan = plan
        self._log = folder / "logs" / "launcher.log"
        self._folder = folder
        self._coordinator = coordinator
        self._evidence = coordinator.run.evidence
        self._conditions = coordinator.run.conditions
        self._scheduler = scheduler

    async def start(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command.launcher_command(self._config, self._plan),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # a script may signal its group, as it has its own in a shell
                # Before the launcher of a job has set its handlers, a signal would end it without
                # its job.
                preexec_fn=_block_signals if self._scheduler else None,
            )

    @property
    def _joined(self) -> Mapping[int, int]:
        return self._coordinator.run.ranks.joined

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> None:
        """Wait until the launcher is over, restarting it if it is killed while its job runs."""
        await self._wait_for_end()
        for _ in range(MAX_RESTARTS):
            if self._scheduler is None or not self._has_left_job():
                break
            if self._conditions.end_now.is_set():
                break
            text = "the launcher was killed and is restarted to follow its job"
            self._coordinator.run.notice(text)
            await asyncio.to_thread(end_descendants, self._scheduler.finish_commands)
            await self.start(self._environment)
            await self._wait_for_end()

    async def end(self) -> None:
        """End the launcher and all ranks, and cancel a job that a killed launcher has left."""
        self._evidence.launcher_ended = self._process.returncode is None
        if self._evidence.is_script and self._process.returncode == 0:
            self._evidence.outlived = self._running_ranks()
        if not self._evidence.stopped_now:
            await self._coordinator.stall_probe.save()
        await self._end_processes()
        survivors = descendants()
        self._evidence.survivors = self._describe_survivors(survivors)
        if self._process.pid in [each.pid for each in survivors]:
            return  # nobody knows when it will end
        code = await self._process.wait()
        self._evidence.launcher_code = code
        pid = self._process.pid
        if self._config.launcher == "inline" and self._joined.get(0, pid) == pid:
            # The launcher is rank 0.
            exited = Exited(time=time.time(), rank=0, pid=pid, code=code)
            self._evidence.exits[0] = exited
            if code:
                self._coordinator.run.writer.add(exited)
        if self._scheduler and self._has_left_job():
            job = self._evidence.job
            cancel = self._scheduler.cancel_abandoned
            self._note_cancelled(await asyncio.to_thread(cancel, self._folder, job))

    def _running_ranks(self) -> list[int]:
        """Return the ranks that the program has started and not waited for."""
        ranks = self._coordinator.run.ranks
        ended = self._evidence.ended
        return [
            rank
            for rank in sorted(self._joined)
            if rank in ranks.pids and rank not in ended and ranks.is_alive(rank)
        ]

    def log_tail(self, size: int = 4000) -> str:
        """Return the last bytes of the launcher's log."""
        with suppress(FileNotFoundError):  # with the run's folder
            return self._log.read_bytes()[-size:].decode(errors="replace")
        return ""

    async def _end_processes(self) -> None:
        """End the launcher and all ranks; a request to end at once cuts their time short."""
        ending = asyncio.create_task(asyncio.to_thread(end_descendants, self._end_signals()))
        end_now = asyncio.create_task(self._conditions.end_now.wait())
        await asyncio.wait([ending, end_now], return_when=asyncio.FIRST_COMPLETED)
        end_now.cancel()
        if not (ending.done() or self._scheduler):
            await asyncio.to_thread(end_descendants, AT_ONCE)
        await ending

    def _describe_survivors(self, survivors: Iterable[psutil.Process]) -> str:
        """Return which processes have not ended although they were killed."""
        rank_of = {pid: rank for rank, pid in self._coordinator.run.ranks.processes.items()}
        names = [
            f"rank {rank_of[each.pid]} (process {each.pid})"
            if each.pid in rank_of
            else f"process {each.pid}"
            for each in survivors
        ]
        if not names:
            return ""
        verb = "has" if len(names) == 1 else "have"
        return f"{', '.join(names)} {verb} not ended after SIGKILL (waits for a disk or a GPU?)"

    def _end_signals(self) -> Iterable[tuple[signal.Signals, float]]:
        if self._scheduler:
            return self._scheduler.end_launcher
        if self._conditions.end_now.is_set():
            return AT_ONCE
        return END_SCRIPT if self._has_script_ranks else GENTLY

    def _has_left_job(self) -> bool:
        """Return whether the launcher was killed, and its job may still run."""
        job = self._evidence.job
        is_job_over = job is not None and (job_status.has_ended(job) or not job.id)
        code = self._process.returncode
        return code is not None and code < 0 and not is_job_over

    def _note_cancelled(self, job: Job) -> None:
        """Note the end of an abandoned job: why the run ends, unless it was to end anyway."""
        if self._conditions.end_now.is_set() or not self._evidence.launcher_killed:
            self._coordinator.run.notice(job.ended)
            job = structs.replace(job, ended="")
        self._coordinator.replay(job)

    # --- waiting ---------------------------------------------------------------------------

    async def _wait_for_end(self) -> None:
        """Wait until the launcher ends, or until there is a reason to end it."""
        conditions = self._conditions
        exit_task = asyncio.create_task(self._process.wait())
        while not (exit_task.done() or conditions.end_now.is_set()):
            if conditions.interrupt.is_set():
                await self._interrupt(exit_task)
                break
            signs = (
                conditions.end_now,
                conditions.interrupt,
                conditions.trouble,
                conditions.all_finished,
            )
            waits = [asyncio.create_task(event.wait()) for event in signs]
            await asyncio.wait([exit_task, *waits], return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if not await self._training_continues(exit_task):
                break
        has_died = exit_task.done() and exit_task.result() < 0
        self._evidence.launcher_killed = has_died or self._evidence.launcher_signal > 0

    async def _interrupt(self, exit_task: asyncio.Task[int]) -> None:
        """Interrupt the ranks, and wait until they have ended or the time for it is over.

        The signal is sent to a process group, as by Ctrl-C in a terminal. Launchers pass it on to
        ranks in groups of their own, and wait for them. Programs put processes into other groups
        that must not get it, as wandb the one that saves what is logged. Node agents, where there
        are any, have received a message.
        """
        if not (self._plan.spread or self._plan.scheduled):
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.killpg(self._process.pid, signal.SIGINT)
        end_now = asyncio.create_task(self._conditions.end_now.wait())
        timeout_s = self._config.report.stop_timeout_s
        await asyncio.wait(
            [exit_task, end_now], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        self._evidence.stop_overdue = not (exit_task.done() or end_now.done())
        end_now.cancel()

    async def _training_continues(self, exit_task: asyncio.Task[int]) -> bool:
        """Return whether training continues after a sign that it ends.

        The launcher gets a moment to report how its ranks ended, and longer if it may restart
        them: a restart clears these conditions.
        """
        conditions = self._conditions
        since = last_seen = time.monotonic()
        while not (exit_task.done() or conditions.end_now.is_set()):
            if conditions.interrupt.is_set():
                return True
            if not (conditions.trouble.is_set() or conditions.all_finished.is_set()):
                return True
            if self._coordinator.run.is_job_queued and not self._coordinator.run.is_complete:
                since = time.monotonic()  # a requeued job may wait for any time
            if self._has_script_ranks:
                last_seen = time.monotonic()
            until = since + self._grace_period_s()
            may_have_ended = self._evidence.is_script and not conditions.all_finished.is_set()
            if may_have_ended and not self._coordinator.run.is_requeued_by_scheduler:
                until = min(until, last_seen + EXIT_S)
            if time.monotonic() > until:
                return False
            await asyncio.wait([exit_task], timeout=CHECK_S)
        return False

    @property
    def _has_script_ranks(self) -> bool:
        """Whether a rank of a script runs, or may run: it has not reported its end."""
        run = self._coordinator.run
        reported = self._evidence.finished.keys() | self._evidence.failures.keys()
        are_gone = len(reported) == self._plan.world_size and not (run.ranks or run.ranks.leaving)
        return self._evidence.is_script and not are_gone

    def _program_may_go_on(self) -> bool:
        """Return whether the ranks are processes of a program, which may have more to do."""
        return bool(self._joined) and not self._evidence.stop_requested

    def _grace_period_s(self) -> float:
        """Return the seconds from the first sign of an end until the launcher is ended."""
        if self._coordinator.run.is_complete or not self._coordinator.run.may_restart:
            if self._conditions.all_finished.is_set():
                return math.inf if self._program_may_go_on() else LEAVE_S
            return SCRIPT_S if self._evidence.is_script else SETTLE_S
        if self._scheduler is None:
            return RESTART_S
        if self._evidence.unreachable and not self._coordinator.run.is_requeued_by_scheduler:
            return SETTLE_S
        return RESTART_S + self._scheduler.poll_s


def _block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
