"""The loader processes of one rank: how they start and end."""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from functools import partial, partialmethod
from mmap import mmap
from multiprocessing import context, popen_spawn_posix, util
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils import signal_handling, worker

from distrain.models.streams import StreamSamples
from distrain.models.task import Task, collate_of
from distrain.runners.config.training_sections import DataConfig
from distrain.runners.system.processes import (
    accept_sigterm_from_parent,
    blocks_sigterm,
    die_with_parent,
)

START_S = 10.0  # within which a process that was forked begins to work
STARTS = 3  # of the processes of a loader, where some of them hang
ENDED_AT_START = (
    "a loader process has ended before it had received its data set: its error is in the log of "
    "the rank, unless it was killed (by the OOM killer?)"
)


class _SpawnPopen(popen_spawn_posix.Popen):
    """Starts a process. Raises BrokenPipeError where that ends before it has received everything.

    Python keeps that process's ends of the pipes open in this one too, and would write forever.
    """

    _fds: list[int]

    def _launch(self, process: BaseProcess) -> None:
        spawn = util.spawnv_passfds  # there is no public way

        def spawn_and_close(path: bytes, words: Any, descriptors: Any) -> int:
            pid = spawn(path, words, descriptors)
            if descriptors is self._fds:  # not those of the resource tracker
                null = os.open(os.devnull, os.O_RDWR)
                for end in descriptors[-2:]:  # which Python closes later
                    os.dup2(null, end, inheritable=False)
                os.close(null)
            return pid

        util.spawnv_passfds = spawn_and_close  # type: ignore[assignment]
        try:
            super()._launch(process)  # type: ignore[misc]
        finally:
            util.spawnv_passfds = spawn


class _SpawnProcess(context.SpawnProcess):
    @staticmethod
    def _Popen(process: BaseProcess) -> _SpawnPopen:  # noqa: N802
        return _SpawnPopen(process)


class _SpawnContext(context.SpawnContext):
    Process = _SpawnProcess


CONTEXTS = {"spawn": _SpawnContext()}


def make_loader(
    task: Task,
    dataset: Dataset[Any],
    config: DataConfig,
    workers: int,
    device: torch.device,
    **options: Any,
) -> DataLoader[Any]:
    """Return a loader with so many processes, which persist; `options` are torch's.

    On a GPU the memory of its batches is pinned where there are processes; else `BatchMover` does.
    """
    if workers:
        options |= {
            "persistent_workers": True,
            "prefetch_factor": config.prefetch,
            "timeout": config.timeout_s,
            "multiprocessing_context": CONTEXTS.get(config.worker_context, config.worker_context),
            "worker_init_fn": _init_loader_process,
        }
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=collate_of(task),
        pin_memory=bool(workers) and config.pin_memory and device.type == "cuda",
        **options,
    )


def start_processes(loader: DataLoader[Any]) -> Any:
    """Return torch's iterator; where a process hangs as it is forked, all of them start again.

    A lock that another thread holds at a fork, such as that of torch's random numbers, is held for
    ever in the child. Raises RuntimeError.
    """
    method = loader.multiprocessing_context.get_start_method()
    if loader._iterator is not None:
        return iter(loader)
    if method != "fork":
        try:
            return iter(loader)
        except (BrokenPipeError, ConnectionResetError, EOFError):
            raise RuntimeError(ENDED_AT_START) from None
    for _ in range(STARTS):
        seeds = loader.generator.get_state()
        begun = mmap(-1, loader.num_workers)
        loader.worker_init_fn = partial(_begin, begun)
        batches: Any = iter(loader)
        hung = _hung(batches._workers, begun)
        if not hung:
            return batches
        pids = ", ".join(str(process.pid) for process in hung)
        text = f"loader processes {pids} hung as they were forked: all of them start again"
        print(text, file=sys.stderr, flush=True)
        _discard(batches, hung)
        loader._iterator = None
        loader.generator.set_state(seeds)
    raise RuntimeError(
        f"loader processes hung as they were forked, {STARTS} times; "
        'data.worker_context="forkserver" forks from a process of its own'
    )


def end_processes(loader: DataLoader[Any]) -> None:
    """End the processes of a loader that pins memory, which is not used any more.

    When Python exits, torch waits 5 s for each of them; processes of other loaders end at once.
    """
    iterator: Any = loader._iterator  # there is no public way
    if iterator is not None and iterator._pin_memory:
        iterator._shutdown_workers()


def _begin(begun: mmap, number: int) -> None:
    begun[number] = 1
    _init_loader_process(number)


def _hung(processes: Sequence[BaseProcess], begun: mmap) -> list[BaseProcess]:
    """Return the processes that sleep and have not begun; wait for them to begin.

    Those that are suspended, or have not had the time on a busy host, are none.
    """
    deadline = time.monotonic() + START_S
    while not all(begun[:]) and all(process.is_alive() for process in processes):
        if time.monotonic() > deadline:
            waiting = [each for each, has in zip(processes, begun[:], strict=True) if not has]
            return [each for each in waiting if _is_asleep(each)]
        time.sleep(0.002)
    return []


def _is_asleep(process: BaseProcess) -> bool:
    try:
        return bool(psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
    except psutil.NoSuchProcess:
        return False


def _discard(batches: Any, hung: Sequence[BaseProcess]) -> None:
    """End the processes of an iterator of torch, some of which hang."""
    signal_handling._remove_worker_pids(id(batches))  # or their end is an error
    batches._worker_pids_set = False
    for process in hung:
        process.kill()
    batches._shutdown_workers()


def _init_loader_process(_: int) -> None:
    die_with_parent()
    rank = multiprocessing.parent_process()
    if rank is not None and not rank.is_alive():  # killed while this process was starting
        os._exit(1)
    if rank is not None and rank.pid != os.getppid():
        # The parent is a fork server, which itself waits for the end of this process.
        threading.Thread(target=_exit_with, args=(rank,), name="rank", daemon=True).start()
    if blocks_sigterm():
        accept_sigterm_from_parent()
    info = get_worker_info()
    assert info is not None
    queue_class: Any = multiprocessing.queues.Queue
    # That of Python prints the error.
    queue_class._on_queue_feeder_error = partialmethod(_send_error, info.id)
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)
    if isinstance(info.dataset, StreamSamples):
        # A stream that divides itself by this number would be divided twice.
        worker._worker_info = None  # there is no public way


def _send_error(queue: Any, number: int, _: Exception, item: Any) -> None:
    """Send an error in place of a batch that cannot be sent; called in its `except` block.

    The batch may hold what cannot be pickled, or /dev/shm may be full. Its rank would wait for it
    until its timeout is over. `number` is that of this loader process.
    """
    match item:
        case (int() as index, _):
            queue.put((index, ExceptionWrapper(where=f"in loader process {number}")))
        case _:  # of a queue of the user's
            traceback.print_exc()
    if torch.multiprocessing.get_sharing_strategy() == "file_descriptor":
        for left in Path("/dev/shm").glob(f"torch_{os.getpid()}_*"):  # did not fit
            left.unlink(missing_ok=True)


def _exit_with(rank: BaseProcess) -> None:
    rank.join()
    os._exit(1)
