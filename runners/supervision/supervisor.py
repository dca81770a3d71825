"""The one process that owns a run, from its queue to its end.

`python -m distrain.runners.supervision.supervisor RECORD` detaches itself and returns once it
listens for ranks and viewers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.launchers.batch_scheduler import batch_scheduler
from distrain.runners.launchers.command import launcher_environment
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.protocol.events import RunEnded
from distrain.runners.records.logs import read_last_words
from distrain.runners.records.meta import read_meta
from distrain.runners.records.reader import Record
from distrain.runners.records.state import read_state
from distrain.runners.records.supervisor_check import is_supervised
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision import background
from distrain.runners.supervision.addresses import (
    interface_variables,
    known_token,
    listen_address,
)
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
from distrain.runners.supervision.journal_merge import JournalMerge
from distrain.runners.supervision.launcher_process import LauncherProcess
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.outcome import Outcome, judge, supervisor_failure
from distrain.runners.supervision.server import serve
from distrain.runners.supervision.state_writer import RESERVE, StateWriter
from distrain.runners.system.files import path_of
from distrain.runners.system.limits import explain
from distrain.runners.system.processes import (
    AT_ONCE,
    adopt_orphans,
    end_descendants,
    process_identity,
    raise_descriptor_limit,
    run_detached,
)
from distrain.runners.system.unbounded_call import call_unbounded

PATIENCE_S = 1.0  # of a run that does not queue, with a process that keeps the queue locked
QUEUE_CHECK_S = 0.5  # between two checks whether devices are free
LAST_EVENTS_S = 2.0  # for what ended ranks have sent and is still in the sockets
LOCK_S = 5.0  # for a supervisor that was killed to be gone
LOCK_CHECK_S = 0.1
RESERVE_BYTES = 1 << 16


class Supervisor:
    """Runs one record from start to end; `run` returns when nothing of the run is left."""

    def __init__(self, folder: Path) -> None:
        record = Record(folder)
        plan = record.state.plan
        assert plan is not None
        self.folder = folder
        self._opened_folder = os.open(folder, os.O_RDONLY)
        self.config = record.config
        self.plan = plan
        self.scheduler = batch_scheduler(self.config)
        self.writer = RecordWriter(folder, has_journal=record.has_journal)
        self.state = StateWriter(self.writer)
        host = socket.gethostname()
        run = LiveRun(self.config, plan, self.writer, self.state.set, host, self.scheduler)
        self.coordinator = Coordinator(run)
        self.journal = JournalMerge(folder, self.writer, self.coordinator)
        self.launcher = LauncherProcess(self.config, plan, folder, self.coordinator, self.scheduler)
        self.lease: DeviceLease | None = None

    def listen_address(self) -> str:
        """Return HOST or HOST:PORT for peers on other hosts; empty where there are none."""
        return listen_address(self.config, self.plan, self.scheduler, self.coordinator.run.notice)

    def known_token(self) -> str:
        """Return the token that other hosts know already; empty where there is none."""
        return known_token(self.config, self.plan)

    # --- the queue -------------------------------------------------------------------------

    def join_queue(self) -> None:
        """Add this run to the device queue.

        Raises DistrainError or OSError if the run must wait but cannot be queued; a run that does
        not have to wait starts without an entry, and gets it later.
        """
        waiting = self.coordinator.run.evidence.queued
        try:
            self.lease = self._make_lease(None if waiting else PATIENCE_S)
        except (DistrainError, OSError) as error:
            if waiting:
                raise
            self.coordinator.run.notice(f"queued runs cannot see this run: {error}")

    def _make_lease(self, patience_s: float | None = None) -> DeviceLease:
        name = read_meta(self.folder).name
        waiting = self.coordinator.run.evidence.queued
        entry = QueueEntry.of(self.plan, self.folder, name, waiting=waiting)
        return DeviceLease(entry, patience_s)

    async def hold_devices(self) -> None:
        """Keep the run's entry in the device queue, which it may not have got at its start."""
        while self.lease is None:
            await asyncio.sleep(background.CHECK_S)
            with suppress(DistrainError, OSError):
                self.lease = await asyncio.to_thread(self._make_lease)
        await background.hold_devices(self.lease, self.coordinator.run)

    async def wait_for_devices(self) -> bool:
        """Wait in the queue if the run is queued; return False where it was stopped meanwhile."""
        if not self.coordinator.run.evidence.queued:
            return True
        assert self.lease is not None
        end_now = self.coordinator.run.conditions.end_now
        tasks = [
            self._start_task(partial(background.watch_folder, self.folder, self.coordinator)),
            self._start_task(partial(background.guard_record, self.state)),
            self._start_task(partial(background.watch_owner, self.coordinator)),
        ]
        ending = asyncio.create_task(end_now.wait())
        while not ending.done():
            # The driver may not answer.
            acquiring = asyncio.create_task(call_unbounded(self.lease.acquire))
            await asyncio.wait([acquiring, ending], return_when=asyncio.FIRST_COMPLETED)
            if not (acquiring.done() and (obstacles := acquiring.result())):
                break
            if obstacles != self.writer.state.waiting_for:
                self.state.set(waiting_for=obstacles)
            await asyncio.wait([ending], timeout=QUEUE_CHECK_S)
        for task in (*tasks, acquiring, ending):
            task.cancel()
        if end_now.is_set():
            return False
        self.coordinator.run.evidence.queued = False
        started = self.writer.state.started if self.scheduler else time.time()
        self.state.set(status="starting", started=started, waiting_for=[])
        return True

    # --- the run ---------------------------------------------------------------------------

    async def run(self, addresses: ServerAddresses) -> None:
        """Start the launcher, wait for its end and receive everything its ranks have sent."""
        self._set_first_status()
        environment = launcher_environment(self.config, self.plan, self.folder, addresses)
        self.coordinator.run.stall_watch.restart()  # the time in the queue does not count
        await self.launcher.start(environment)
        if not self.writer.recovered:
            for text in self.plan.notices:
                self.coordinator.run.notice(text)
        tasks = [self._start_task(task) for task in self._background_tasks(addresses)]
        rank_environment = environment | interface_variables(self.config, self.plan, addresses)
        provenance = self._start_task(partial(self._record_provenance, rank_environment))
        await self.launcher.wait()
        await self.launcher.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(provenance, *tasks, return_exceptions=True)
        await self._receive_last_events()
        evidence = self.coordinator.run.evidence
        evidence.launcher_log = self.launcher.log_tail()
        codes = {rank: each.code for rank, each in evidence.exits.items()}
        evidence.last_words.update(read_last_words(self.folder, codes))

    def _set_first_status(self) -> None:
        if self.coordinator.run.is_stopping:
            return
        if self.scheduler and self.writer.state.job is None:
            submitting = f"the job is being submitted to {self.scheduler.name}"
            self.state.set(status="queued", waiting_for=[submitting])
        else:
            self.state.set(status="running")

    def _start_task(self, task: background.BackgroundTask) -> asyncio.Task[None]:
        return asyncio.create_task(background.keep_running(task, self.coordinator.run))

    def _background_tasks(self, addresses: ServerAddresses) -> list[background.BackgroundTask]:
        tasks: list[background.BackgroundTask] = [
            partial(
                background.commit_regularly, self.plan, self.writer, self.state, self.coordinator
            ),
            partial(
                background.sample_regularly,
                self.config,
                self.plan,
                self.writer,
                self.coordinator,
            ),
            partial(background.sample_gpus, self.config, self.plan, self.writer),
            partial(background.watch_for_stalls, self.coordinator),
            partial(background.watch_launcher, self.launcher, self.coordinator),
            partial(background.watch_owner, self.coordinator),
            partial(background.watch_time, self.coordinator),
            partial(background.watch_folder, self.folder, self.coordinator),
            partial(background.guard_record, self.state),
            partial(background.touch_regularly, self.state),
            self.hold_devices,
            partial(
                background.wait_for_hosts,
                self.config,
                self.plan,
                self.folder,
                self.state,
                self.coordinator,
                addresses,
            ),
        ]
        if self.scheduler:
            tasks.append(self.journal.follow)
        return tasks

    async def _record_provenance(self, environment: dict[str, str]) -> None:
        if self.writer.state.provenance:  # of the first supervisor: this one may be elsewhere
            return
        found = await asyncio.to_thread(_provenance, self.folder, environment)
        self.state.set(provenance=found)

    async def _receive_last_events(self) -> None:
        """Receive what is still in the sockets of ranks and node agents that have ended."""
        coordinator = self.coordinator
        deadline = time.monotonic() + LAST_EVENTS_S
        await asyncio.sleep(0.05)
        while coordinator.run.ranks or coordinator.run.membership.has_unfinished:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        self.journal.merge()

    def _remove_partial_checkpoints(self) -> None:
        """Remove what a rank left that was killed while it saved; on a full disk it makes room."""
        for partial_file in (self.writer.dir / "checkpoints").glob("*.partial"):
            with suppress(OSError):
                partial_file.unlink()

    def close(self, outcome: Outcome) -> None:
        """Write how the run ended and release its devices."""
        if self.coordinator.run.evidence.folder_lost:
            self.writer.dir = path_of(self._opened_folder, self.folder)
        if self.writer.dir.exists():
            self._remove_partial_checkpoints()
            self.state.finish(outcome)
        if self.lease:
            self.lease.close()


async def supervise(folder: Path, on_ready: Callable[[], None]) -> None:
    """Run a record from start to end; call `on_ready` once ranks and viewers can connect."""
    supervisor = Supervisor(folder)
    coordinator = supervisor.coordinator
    writer = supervisor.writer
    reserve = folder / RESERVE
    if writer.recovered:
        writer.set_state(socket="", **process_identity())  # so that nobody else recovers it
        supervisor.journal.recover()
    async with serve(
        coordinator, folder, supervisor.listen_address(), supervisor.known_token()
    ) as addresses:
        reserve.write_bytes(bytes(RESERVE_BYTES))
        supervisor.join_queue()
        waits = coordinator.run.evidence.queued or supervisor.scheduler is not None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, coordinator.control.stop)
        loop.add_signal_handler(signal.SIGTERM, coordinator.control.terminate)
        started = writer.state.started or (None if waits else time.time())
        writer.set_state(started=started, socket=addresses.local, **process_identity())
        on_ready()
        try:
            if await supervisor.wait_for_devices():
                await supervisor.run(addresses)
            outcome = judge(coordinator.run.evidence)
            if outcome.status == "completed":
                coordinator.explain_missing_ends()
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            outcome = supervisor_failure(error)
        finally:
            end_descendants(AT_ONCE)
        coordinator.run.membership.broadcast(RunEnded(status=outcome.status, reason=outcome.reason))
    supervisor.close(outcome)


def _provenance(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    # Imported while the ranks start, so that it does not delay them.
    from distrain.runners.system.provenance import provenance

    return provenance(folder, environment)


def _lock(descriptor: int, folder: Path) -> None:
    """Lock the record's folder; wait for a supervisor that was killed but still exists.

    Raises BlockingIOError where another supervisor runs, and RunsFolderError where the file system
    has no locks.
    """
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_supervised(read_state(folder)) or time.monotonic() > deadline:
                raise
        except OSError as error:
            raise RunsFolderError(
                f"cannot lock the record {folder}: {error.strerror}; choose a runs folder on a file"
                " system with locks (--runs-dir or $DISTRAIN_RUNS_DIR)"
            ) from None
        time.sleep(LOCK_CHECK_S)


def main() -> int:
    """Return 0 once a detached process listens, 1 if it could not."""
    folder = Path(sys.argv[1]).resolve()

    def work(on_ready: Callable[[], None]) -> int:
        faulthandler.enable()  # the log tells where a SIGBUS or SIGSEGV came from
        adopt_orphans()
        raise_descriptor_limit()
        lock = os.open(folder, os.O_RDONLY)
        failure = ""
        try:
            _lock(lock, folder)
            with asyncio.Runner() as runner:
                runner.get_loop()  # refused where few files may be open
                runner.run(supervise(folder, on_ready))
        except BlockingIOError:
            failure = "another supervisor already owns this run"
        except DistrainError as error:
            failure = str(error)
        except OSError as error:
            traceback.print_exc()
            failure = explain(error)
        if failure:  # the last line of the log, which is shown
            print(failure, file=sys.stderr)
        return 1 if failure else 0

    return run_detached(work, folder / "logs" / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
