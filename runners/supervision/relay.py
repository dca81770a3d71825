"""Within a scheduler's job: its first node records the run where the supervisor is out of reach.

`python -m distrain.runners.supervision.relay COMMAND …` becomes that command where the supervisor
can be reached. Otherwise it runs the command and takes the supervisor's place for the ranks: it
listens on this node, answers them and keeps a journal in the record's folder, which the supervisor
merges into the record.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from distrain.runners.errors import DistrainError
from distrain.runners.launchers.batch_scheduler import BatchScheduler, batch_scheduler
from distrain.runners.protocol.client import (
    TOKEN_FILE_NAME,
    TOKEN_FILE_VARIABLE,
    read_own_token,
    send_to_supervisor,
)
from distrain.runners.protocol.events import Notice, Stop, decode, encode
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.reader import Record
from distrain.runners.records.state import read_state
from distrain.runners.records.write_errors import report_write_errors
from distrain.runners.supervision import background
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.server import serve
from distrain.runners.system.files import write_atomically

FOLDER = "job"  # in the record: this process's token, and requests to it
STOP_REQUEST = "stop.json"
CHECK_S = 0.5
REACH_S = 10.0
LAST_WRITE_S = 60.0


def request_stop(folder: Path, stop: Stop) -> None:
    """Stop the ranks of a job whose nodes cannot be reached. Raises OSError."""
    write_atomically(folder / FOLDER / STOP_REQUEST, encode(stop))


def main() -> int:
    """Return the exit code of the command in the arguments."""
    command = sys.argv[1:]
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    scheduler = batch_scheduler(record.config)
    assert scheduler is not None
    # The stored state: this host cannot check whether the supervisor still runs.
    if not (state := read_state(record.dir)).live:
        print(f"run {state.run_id} has ended: {state.status}", file=sys.stderr)
        return 1
    if scheduler.reports_by_files:
        reason = 'the config has slurm.report = "files"'
    else:
        reason = unreachable(os.environ["DISTRAIN_SOCKET"])
    if not reason:
        os.execvp(command[0], command)
    try:
        return asyncio.run(run_recorded(record, scheduler, command, reason))
    except DistrainError as error:
        print(error, file=sys.stderr)
        return 1


def unreachable(address: str) -> str:
    """Return why the supervisor cannot be reached at an address; empty where it can."""
    if not address:
        return "the address of the login node is unknown"
    try:
        send_to_supervisor(address, token=read_own_token(), seconds=REACH_S)
    except OSError as error:
        return f"{address} is out of reach: {error.strerror or error}"
    return ""


async def run_recorded(
    record: Record, scheduler: BatchScheduler, command: list[str], reason: str
) -> int:
    """Run the command to its end and record what its ranks send; return its exit code.

    `reason` says why the ranks do not report to the supervisor.
    """
    host = socket.gethostname()
    folder = record.dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / STOP_REQUEST).unlink(missing_ok=True)
    plan = record.state.plan
    assert plan is not None
    journal = JournalWriter(record.dir)
    run = LiveRun(record.config, plan, journal, journal.set_state, host, scheduler)
    coordinator = Coordinator(run)
    text = f"{host} records the run in a journal in its folder: {reason}"
    journal.add(Notice(time=time.time(), level="info", text=text))
    async with serve(coordinator, folder, scheduler.node_address()) as addresses:
        own = {
            "DISTRAIN_SOCKET": addresses.remote,
            TOKEN_FILE_VARIABLE: str(folder / TOKEN_FILE_NAME),
        }
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **own})
        exit_task = asyncio.create_task(process.wait())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(number, process.send_signal, number)
        stalls = asyncio.create_task(
            background.keep_running(partial(background.watch_for_stalls, coordinator), run)
        )
        while not exit_task.done():
            await asyncio.wait([exit_task], timeout=CHECK_S)
            _handle_request(folder / STOP_REQUEST, coordinator)
            coordinator.stop_in_time()
            if coordinator.run.evidence.unreachable or coordinator.run.conditions.end_now.is_set():
                with suppress(ProcessLookupError):
                    process.terminate()
            with report_write_errors():
                journal.commit()
        stalls.cancel()
    await write_rest(journal)
    return exit_task.result()


async def write_rest(journal: JournalWriter) -> None:
    """Write what is left of a journal; wait up to LAST_WRITE_S for room on a full disk."""
    deadline = time.monotonic() + LAST_WRITE_S
    while journal.pending and time.monotonic() < deadline:
        with report_write_errors():
            journal.commit()
        await asyncio.sleep(CHECK_S if journal.pending else 0)
    with report_write_errors():
        journal.close()


def _handle_request(request: Path, coordinator: Coordinator) -> None:
    with suppress(OSError, msgspec.MsgspecError):  # a network file system may not answer now
        stop = decode(request.read_bytes())
        request.unlink()
        if isinstance(stop, Stop):
            coordinator.control.stop(now=stop.now, restart=stop.restart)


if __name__ == "__main__":
    sys.exit(main())
