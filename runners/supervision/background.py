"""What a supervisor does regularly while the ranks of its run train."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import TOKEN_FILE_NAME, ServerAddresses
from distrain.runners.records.supervisor_check import SILENT_S
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.device_queue import DeviceLease
from distrain.runners.supervision.launcher_process import LauncherProcess
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.membership import hosts_join
from distrain.runners.supervision.state_writer import StateWriter
from distrain.runners.system.processes import is_suspended, owner_is_gone
from distrain.runners.system.telemetry import GpuSampler, RankSampler, sample_host
from distrain.runners.system.unbounded_call import call_unbounded

COMMIT_S = 0.5  # pause between commits
# The commit interval is at least 1 s per so many ranks: the rows of each rank cost a disk page.
RANKS_PER_SECOND = 512
CHECK_S = 1.0
TOUCH_S = SILENT_S / 5
SUSPENDED_CHECKS = 3  # in a row that find a suspended launcher
RETRY_S = 1.0  # from a task's error to its next try
MOST_TRIES = 100
MOST_MISSES = 5  # checks in a row that do not find a run's folder


BackgroundTask = Callable[[], Awaitable[None]]


async def keep_running(task: BackgroundTask, run: LiveRun) -> None:
    """Run a task, and begin it again after an error; errors go to the log, the first as a notice.

    After MOST_TRIES it is given up, and the run continues without it.
    """
    for attempt in range(MOST_TRIES):
        try:
            await task()
            return
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            if attempt == 0:
                name = getattr(task, "func", task).__qualname__
                run.notice(f"internal error in {name}: {formatting.single_line(repr(error))}")
        await asyncio.sleep(RETRY_S)


async def commit_regularly(
    plan: Plan, writer: RecordWriter, state: StateWriter, coordinator: Coordinator
) -> None:
    """Write what was received to the record; a batch that a full disk refuses is tried again."""
    pause = max(COMMIT_S, plan.world_size / RANKS_PER_SECOND)
    while True:
        await asyncio.sleep(pause)
        is_queued = writer.state.status == "queued"
        if coordinator.run.ranks and is_queued:  # they are known before the job's state
            state.set(status="running")
        state.set()
        await state.commit_in_background()


async def guard_record(state: StateWriter) -> None:
    """Write files of the record again if somebody else deletes or overwrites them."""
    while True:
        await asyncio.sleep(CHECK_S)
        await state.restore_in_background()


async def touch_regularly(state: StateWriter) -> None:
    """Touch run.json: to readers on other hosts, a run whose record does not change has failed."""
    while True:
        await asyncio.sleep(TOUCH_S)
        await asyncio.to_thread(state.touch)


async def sample_regularly(
    config: RunConfig, plan: Plan, writer: RecordWriter, coordinator: Coordinator
) -> None:
    """Sample the ranks and this host; a scheduler's nodes sample themselves."""
    ranks = RankSampler()
    while True:
        pids = dict(coordinator.run.ranks.pids)
        for rank_sample in await asyncio.to_thread(ranks.sample, pids):
            writer.add(rank_sample)
        if not plan.scheduled:
            writer.add(sample_host())
        await asyncio.sleep(config.report.sample_s)


async def sample_gpus(config: RunConfig, plan: Plan, writer: RecordWriter) -> None:
    """Sample the GPUs of this host; the driver may not answer, not even at the end of NVML."""
    uuids = [device.uuid for device in plan.devices if device.kind == "cuda"]
    gpus = await call_unbounded(partial(GpuSampler, uuids))
    while True:
        for sample in await call_unbounded(gpus.sample):
            writer.add(sample)
        await asyncio.sleep(config.report.sample_s)


async def hold_devices(lease: DeviceLease, run: LiveRun) -> None:
    """Keep the run's entry in the device queue; one notice tells where that fails."""
    has_failed = False
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            await asyncio.to_thread(lease.refresh)  # it may wait for the lock of the queue
        except (DistrainError, OSError) as error:
            if not has_failed:
                run.notice(f"queued runs cannot see this run: {error}")
            has_failed = True


async def watch_for_stalls(coordinator: Coordinator) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        await coordinator.stall_probe.check()


async def watch_launcher(launcher: LauncherProcess, coordinator: Coordinator) -> None:
    """Tell that the launcher is suspended: its ranks train on, but nothing starts or ends them."""
    checks = 0
    while True:
        await asyncio.sleep(CHECK_S)
        pid = launcher.pid  # another one once it was restarted
        checks = checks + 1 if is_suspended(pid) else 0
        if checks == SUSPENDED_CHECKS:
            text = f"the launcher (process {pid}) was stopped by a signal"
            # The notice stays when the launcher continues.
            coordinator.run.notice(f"{text}; if it still is, `kill -CONT {pid}` continues it")


async def watch_time(coordinator: Coordinator) -> None:
    """Stop the run at the limit of `train.max_time_s`, also in a later attempt."""
    while coordinator.run.config.train.max_time_s is not None:
        await asyncio.sleep(CHECK_S)
        coordinator.stop_in_time()


async def watch_owner(coordinator: Coordinator) -> None:
    """Stop the run once the process that it belongs to has exited."""
    while not owner_is_gone():
        await asyncio.sleep(CHECK_S)
    coordinator.run.notice("the process that started this run has exited")
    coordinator.control.stop(now=True)


async def watch_folder(folder: Path, coordinator: Coordinator) -> None:
    """End the run once its folder is not at its path any more: nobody would find it there.

    A network file system may lose sight of it for a moment, or not answer for longer.
    """
    identity = _identity(folder)
    misses = 0
    while misses < MOST_MISSES:
        await asyncio.sleep(CHECK_S)
        found = _identity(folder)
        identity = identity or found
        misses = 0 if found in (identity, None) else misses + 1
    text = f"the run's folder {folder} was moved or deleted, so the run ends"
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
    coordinator.run.evidence.folder_lost = str(folder)
    coordinator.run.conditions.end_now.set()


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode of a folder: zeros where there is none, None while it is unknown."""
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    except OSError:  # of a file system that is out of reach
        return None
    return found.st_dev, found.st_ino


async def wait_for_hosts(
    config: RunConfig,
    plan: Plan,
    folder: Path,
    state: StateWriter,
    coordinator: Coordinator,
    addresses: ServerAddresses,
) -> None:
    """Show which hosts have still to join, and end the run where they do not come in time.

    Until ranks connect, one that has joined may turn out to be unable to take part.
    """
    if not hosts_join(plan):
        return
    deadline = time.monotonic() + config.dist.join_timeout_s
    shown: list[str] = []
    was_complete = False
    trouble = coordinator.run.conditions.trouble
    while not (coordinator.run.ranks.any_has_greeted or trouble.is_set()):
        missing = coordinator.run.membership.missing
        if was_complete:  # the launcher's exit is the end of the first host
            missing = [number for number in missing if number]
        was_complete |= not missing
        if missing and time.monotonic() >= deadline:
            hosts = formatting.plural(len(missing), "host")
            coordinator.run.evidence.missing = formatting.ranks(missing) if plan.tasks else hosts
            trouble.set()
            break
        sentences = _awaited_hosts(plan, folder, missing, addresses) if missing else []
        if sentences != shown:
            shown = sentences
            state.set(waiting_for=sentences)
        await asyncio.sleep(CHECK_S)
    state.set(waiting_for=[])


def _awaited_hosts(
    plan: Plan, folder: Path, missing: list[int], addresses: ServerAddresses
) -> list[str]:
    """Return which hosts have still to join and how; the first one joins by itself."""
    others = [number for number in missing if number] or missing
    if plan.tasks:
        return [f"{formatting.ranks(others)} of {plan.world_size} to join"]
    address = addresses.remote.removeprefix("tcp:")
    count = f"{len(others)} of {formatting.plural(plan.nodes, 'host')}"
    command = f"distrain join {address} --token-file {TOKEN_FILE_NAME}"
    return [
        f"{count} to join; run on each: {command}",
        f"copy the file {TOKEN_FILE_NAME} from {folder / TOKEN_FILE_NAME}",
    ]
