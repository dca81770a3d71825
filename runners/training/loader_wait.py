"""How long a rank waits for the batches of its loader processes, and why none came."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Self

from torch.utils.data import DataLoader

from distrain.models.errors import TaskError
from distrain.runners import formatting
from distrain.runners.training.loader_processes import start_processes

CHECK_S = 5.0  # between two looks for loader processes that have ended
ENDING_S = 1.0  # from the end of its socket until a process has ended
EARLY = "before all of its batches were received"


def wait_for_batches(loader: DataLoader[Any], timeout_s: float) -> Iterator[Any]:
    """Yield the batches of a loader, each within so many seconds. Raises RuntimeError."""
    _check_idle_processes(loader)
    if not loader.num_workers:
        return iter(loader)
    batches = start_processes(loader)
    if not batches._pin_memory:
        # torch only reads here. So reading ends with the last process that could write the rest of
        # a batch, instead of waiting forever for one that has ended within it.
        batches._worker_result_queue._writer.close()
    return _retry(batches, timeout_s)


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
                if guard.ended:
                    raise _early_end(guard.ended, EARLY) from None
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
            raise _early_end(loader, EARLY) from error


class _Guard(threading.Thread):
    """Ends the loader processes some time after a deadline, while their rank waits for a batch.

    torch waits without a limit for the tensors of a batch that a process has announced: they come
    through a socket of that process, which may hang or be suspended. It also waits for the rest of
    a large batch without tensors: where the process that was sending it has `ended`, the others,
    which wait for their turn, are ended too.
    """

    def __init__(self, loaders: Sequence[BaseProcess], timeout_s: float) -> None:
        super().__init__(name="loaders", daemon=True)
        self.deadline = math.inf
        self.has_ended_loaders = False
        self.ended: BaseProcess | None = None
        self._timeout_s = timeout_s
        self._loaders = loaders
        self._check_s = min(timeout_s, CHECK_S)
        self._has_passed = threading.Event()

    def run(self) -> None:
        while not self._has_passed.wait(self._check_s):
            waited_s = time.monotonic() - self.deadline + self._timeout_s
            # torch itself has time to report both first.
            if waited_s > self._timeout_s + self._check_s:
                self.has_ended_loaders = True
            elif waited_s > 2 * self._check_s:
                self.ended = next((each for each in self._loaders if not each.is_alive()), None)
            if self.has_ended_loaders or self.ended:
                for loader in self._loaders:
                    loader.kill()
                return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_passed.set()
