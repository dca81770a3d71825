"""The loader processes of one rank: how they start, and how long a rank waits for their batches."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.queues
import os
import random
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partialmethod
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils import worker

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
    batches = iter(loader)
    if not loader.num_workers:
        return batches
    return _retry(batches, timeout_s)


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
