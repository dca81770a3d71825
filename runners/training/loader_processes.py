"""The loader processes of one rank: how they start, and how long a rank waits for their batches."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.queues
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial, partialmethod
from mmap import mmap
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils import signal_handling, worker

from distrain.models.errors import TaskError
from distrain.models.streams import StreamSamples
from distrain.models.task import Task, collate_of
from distrain.runners import formatting
from distrain.runners.config.training_sections import DataConfig
from distrain.runners.system.processes import (
    accept_sigterm_from_parent,
    blocks_sigterm,
    die_with_parent,
)

START_S = 10.0  # within which a process that was forked begins to work
STARTS = 3  # of the processes of a loader, where some of them hang
CHECK_S = 5.0  # between two looks for loader processes that have ended
ENDING_S = 1.0  # from the end of its socket until a process has ended


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
            "multiprocessing_context": config.worker_context,
            "worker_init_fn": _init_loader_process,
        }
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=collate_of(task),
        pin_memory=bool(workers) and config.pin_memory and device.type == "cuda",
        **options,
    )


def wait_for_batches(loader: DataLoader[Any], timeout_s: float) -> Iterator[Any]:
    """Yield the batches of a loader, each within so many seconds. Raises RuntimeError."""
    _check_idle_processes(loader)
    if not loader.num_workers:
        return iter(loader)
    return _retry(_start(loader), timeout_s)


def end_processes(loader: DataLoader[Any]) -> None:
    """End the processes of a loader that pins memory, which is not used any more.

    When Python exits, torch waits 5 s for each of them; processes of other loaders end at once.
    """
    iterator: Any = loader._iterator  # there is no public way
    if iterator is not None and iterator._pin_memory:
        iterator._shutdown_workers()


def _check_idle_processes(loader: DataLoader[Any]) -> None:
    """Raise RuntimeError if a loader process has ended since the last pass.

    torch would wait for it until its own timeout is over. It has no public way to its processes.
    """
    for process in getattr(loader._iterator, "_workers", ()):
        if not process.is_alive():
            raise _early_end(process, "after a pass over its data")


def _start(loader: DataLoader[Any]) -> Any:
    """Return torch's iterator; where a process hangs as it is forked, all of them start again.

    A lock that another thread holds at a fork, such as that of torch's random numbers, is held for
    ever in the child. Raises RuntimeError.
    """
    context: Any = loader.multiprocessing_context
    if loader._iterator is not None or context.get_start_method() != "fork":
        return iter(loader)
    for _ in range(STARTS):
        seeds = loader.generator.get_state()
        begun = mmap(-1, loader.num_workers)
        loader.worker_init_fn = partial(_begin, begun)
        batches: Any = iter(loader)
        hung = _hung(batches._workers, begun)
        if not hung:
            return batches
        pids = ", ".join(str(process.pid) for process in hung)
        print(f"hung as they were forked: loader processes {pids}", file=sys.stderr, flush=True)
        _discard(batches, hung)
        loader._iterator = None
        loader.generator.set_state(seeds)
    text = f"loader processes hung as they were forked, {STARTS} times"
    raise RuntimeError(f'{text}; data.worker_context="forkserver" forks from a process of its own')


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


def _early_end(process: BaseProcess, when: str) -> RuntimeError:
    code = process.exitcode
    if code is not None and code < 0:
        how = f"was killed by {formatting.signal_name(-code)}"
    else:
        how = f"has ended with exit code {code}"
    return RuntimeError(f"a loader process (pid {process.pid}) {how} {when}")


def _retry(batches: Any, timeout_s: float) -> Iterator[Any]:
    """Look for loader processes that have ended while none of them sends a batch.

    torch looks for them when its own timeout is over, which is therefore shorter here. At the start
    of an epoch it waits for all of them, and cannot try that again: there the timeout is the whole.
    """
    with _Guard(batches._workers, timeout_s) as guard:
        while True:
            guard.deadline = time.monotonic() + timeout_s
            try:
                batch = _next(batches, guard, timeout_s)
            except StopIteration:
                return
            guard.deadline = math.inf
            yield batch


def _next(batches: Any, guard: _Guard, timeout_s: float) -> Any:
    """Return the next batch, if it comes before the deadline of the guard."""
    batches._timeout = min(timeout_s, CHECK_S)  # there is no public way
    try:
        while True:
            try:
                return next(batches)
            except (RuntimeError, OSError, EOFError) as error:
                is_late = time.monotonic() >= guard.deadline
                if is_late or guard.has_ended_loaders:
                    text = f"no batch came from the loader processes within {timeout_s:g} s"
                    raise RuntimeError(f"{text} (data.timeout_s)") from None
                if "DataLoader timed out" not in str(error):
                    _explain(error, batches._workers)
                    raise (_task_error(error) or error) from None
    finally:
        batches._timeout = timeout_s


def _task_error(error: BaseException) -> TaskError | None:
    """Return the TaskError of a loader process, of which torch makes a text with its traceback."""
    text = str(error).strip()
    if not text.startswith("Caught TaskError "):
        return None
    key, _, sentence = text.rpartition("TaskError: ")[2].partition(": ")
    return TaskError(key, sentence)


def _explain(error: Exception, loaders: Sequence[BaseProcess]) -> None:
    """Raise RuntimeError if the tensors of a batch cannot be received because their loader ended.

    torch says so only if the process is gone by then, and it closes its sockets before that.
    """
    if isinstance(error, RuntimeError) or str(error).startswith("Caught "):  # torch's own words
        return
    for loader in loaders:
        loader.join(ENDING_S)
        if loader.exitcode is not None:
            raise _early_end(loader, "before all of its batches were received") from error


class _Guard(threading.Thread):
    """Ends the loader processes some time after a deadline, while their rank waits for a batch.

    torch waits without a limit for the tensors of a batch that a process has announced: they come
    through a socket of that process, which may hang or be suspended.
    """

    def __init__(self, loaders: Sequence[BaseProcess], timeout_s: float) -> None:
        super().__init__(name="loaders", daemon=True)
        self.deadline = math.inf
        self.has_ended_loaders = False
        self._loaders = loaders
        self._check_s = min(timeout_s, CHECK_S)
        self._has_passed = threading.Event()

    def run(self) -> None:
        while not self._has_passed.wait(self._check_s):
            if time.monotonic() > self.deadline + self._check_s:  # torch itself had the time
                self.has_ended_loaders = True
                for loader in self._loaders:
                    loader.kill()
                return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_passed.set()


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
