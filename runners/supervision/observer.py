"""The process that records a run which distrain did not start. It owns only the record.

`python -m distrain.runners.supervision.observer` reads an ObservationRequest from its standard
input, creates the record, detaches itself and returns once the ranks can connect. Nothing of the
program is ever ended by it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from distrain.runners import formatting
from distrain.runners.config.planning import observed_plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import read_user_token
from distrain.runners.records.folder import create_run
from distrain.runners.records.meta import Meta
from distrain.runners.records.reader import Record
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision import background
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.observed_outcome import judge_observed
from distrain.runners.supervision.server import serve
from distrain.runners.supervision.state_writer import StateWriter
from distrain.runners.system import observers
from distrain.runners.system.files import lock_within
from distrain.runners.system.observers import ObservationRequest, Observer
from distrain.runners.system.processes import (
    is_running,
    process_identity,
    raise_descriptor_limit,
    run_detached,
)
from distrain.runners.system.provenance import provenance

CHECK_S = 0.05
FIRST_RANK_S = 60.0  # until rank 0, which has started this process, must have connected
LATE_RANK_S = 10.0  # for ranks that connect after the others have ended


class RunObserver:
    """Records one run until all its ranks have ended."""

    def __init__(self, folder: Path, request: ObservationRequest) -> None:
        record = Record(folder)
        plan = record.state.plan
        assert plan is not None
        self._folder = folder
        self._request = request
        self._config = record.config
        self._plan = plan
        self._writer = RecordWriter(folder)
        self._state = StateWriter(self._writer)
        set_state = self._state.set
        run = LiveRun(self._config, plan, self._writer, set_state, socket.gethostname(), None)
        self._coordinator = Coordinator(run)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Listen, receive everything that the ranks send, and write how they ended."""
        listen = self._request.listen
        token = read_user_token() if listen else ""
        async with serve(self._coordinator, self._folder, listen, token) as addresses:
            self._state.set(
                status="running",
                started=self._request.started,
                socket=addresses.local,
                **process_identity(),
            )
            observer = Observer(addresses.local, str(self._folder), os.getpid())
            observers.publish(self._request.key, observer)
            on_ready()
            run = self._coordinator.run
            tasks = [
                asyncio.create_task(background.keep_running(each, run)) for each in self._tasks()
            ]
            await self._wait_for_end()
            observers.withdraw(self._request.key, os.getpid())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            evidence, absent = self._coordinator.run.evidence, self._coordinator.run.absent_ranks
            self._state.finish(judge_observed(evidence, absent, self._running))

    def _tasks(self) -> list[background.BackgroundTask]:
        plan, writer, coordinator = self._plan, self._writer, self._coordinator
        return [
            partial(background.commit_regularly, plan, writer, self._state, coordinator),
            partial(background.sample_regularly, self._config, plan, writer, coordinator),
            partial(background.sample_gpus, self._config, plan, writer),
            partial(background.guard_record, self._state),
            partial(background.touch_regularly, self._state),
            partial(background.watch_for_stalls, coordinator),
            self._record_provenance,
        ]

    async def _record_provenance(self) -> None:
        self._state.set(
            provenance=await asyncio.to_thread(provenance, self._folder, dict(os.environ))
        )

    async def _wait_for_end(self) -> None:
        """Wait until every rank has ended, and a moment for those that have not connected yet."""
        end_now = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end_now.set)
        ranks, evidence = self._coordinator.run.ranks, self._coordinator.run.evidence
        deadline = time.monotonic() + FIRST_RANK_S
        while time.monotonic() < deadline and not end_now.is_set():
            await asyncio.sleep(CHECK_S)
            running = self._running
            absent = self._coordinator.run.absent_ranks
            if running:
                deadline = time.monotonic() + LATE_RANK_S
                self._show_absent(absent)
            elif not absent:
                return
            elif not (ranks.any_has_greeted or self._rank_0_exists()):
                # What it has sent before may still be in its socket: look once more.
                deadline = min(deadline, time.monotonic() + 2 * CHECK_S)
            if running or absent:
                ranks.close(evidence.ended)

    @property
    def _running(self) -> set[int]:
        """The ranks that are connected and have not ended."""
        return self._coordinator.run.ranks.by_rank.keys() - self._coordinator.run.evidence.ended

    def _rank_0_exists(self) -> bool:
        return is_running(self._request.pid, None)

    def _show_absent(self, absent: list[int]) -> None:
        sentences = [f"{formatting.ranks(absent)} to connect"] if absent else []
        if sentences != self._writer.state.waiting_for:
            self._state.set(waiting_for=sentences)


def create_record(request: ObservationRequest) -> Path:
    """Create the record of a program that runs already. Raises DistrainError."""
    program, *arguments = request.words
    script = {"module" if request.is_module else "path": program, "args": arguments}
    config = RunConfig.from_dict({"script": script, "launcher": request.started_by})
    plan = observed_plan(config, request.world_size, request.local_size)
    name = request.name or Path(config.script.name).stem
    runs_dir = Path(os.environ.get("DISTRAIN_RUNS_DIR") or "runs").absolute()
    return create_run(
        runs_dir,
        config,
        plan=plan,
        word=name,
        command=request.words,
        meta=Meta(name=name),
    )


def main() -> int:
    """Return 0 once a detached process listens, 1 with a sentence if it cannot."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ObservationRequest)
    try:
        folder = create_record(request)
    except DistrainError as error:
        print(f"distrain does not record this run: {error}", file=sys.stderr)
        return 1

    def work(on_ready: Callable[[], None]) -> int:
        raise_descriptor_limit()
        with suppress(OSError):  # not every file system has locks
            # Kept until this process ends; other containers see nothing else of it.
            lock_within(os.open(folder, os.O_RDONLY), 0)
        asyncio.run(RunObserver(folder, request).run(on_ready))
        return 0

    return run_detached(work, folder / "logs" / "supervisor.log")


if __name__ == "__main__":
    sys.exit(main())
