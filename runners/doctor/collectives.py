"""Which operations of a process group work here, tried by pairs of processes.

Starts `probe` in pairs, bounds every wait, and kills what it started. An operation that failed may
leave a group out of step, so a failure counts only if it is the first one of its group.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from distrain.runners import formatting
from distrain.runners.launchers.command import INHERITED
from distrain.runners.system.network import choose_interface
from distrain.runners.system.scratch import scratch_folder

OPERATIONS = (
    "send",
    "recv",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
START_S = 90.0  # for both ranks to join their group
OPERATION_S = 15.0
GRACE_S = 2.0  # for the other rank's answer after a failure
PROGRAM = [sys.executable, "-P", "-m", "distrain.runners.doctor.probe"]

# A line of a rank; None is the end of its output.
ProbeMessage = dict[str, Any] | None


class OperationResult(msgspec.Struct, frozen=True):
    """Whether an operation gave the right result; the `reason` if the answer is not "yes"."""

    answer: Literal["yes", "no", "hangs", "n/a"]
    reason: str = ""


def try_operations(
    backend: str, devices: tuple[str, str], on_result: Callable[[str], None] = lambda name: None
) -> dict[str, OperationResult]:
    """Try every operation between two processes on `devices`, e.g. ("cpu", "cpu").

    `on_result` is called with the name of each operation as its result comes.
    """
    results: dict[str, OperationResult] = {}
    remaining = list(OPERATIONS)
    while remaining:
        with _start_pair(backend, devices, remaining) as pair:
            if failure := pair.wait_until_ready():
                return results | dict.fromkeys(remaining, failure)
            for operation, result in _reliable_results(pair, remaining):
                results[operation] = result
                on_result(operation)
        remaining = [operation for operation in remaining if operation not in results]
    return results


def _reliable_results(
    pair: _RankPair, operations: list[str]
) -> Iterator[tuple[str, OperationResult]]:
    """Yield results up to a second failure, or to one after which the pair cannot continue.

    The second failure is left out: a new pair must try that operation again.
    """
    has_failed = False
    for operation in operations:
        result, can_continue = pair.wait_for(operation)
        failed = result.answer != "yes"
        if failed and has_failed:
            return
        yield operation, result
        has_failed = has_failed or failed
        if not can_continue:
            return


def probe_environment() -> dict[str, str]:
    """Return the environment of probe processes: like that of a run's ranks."""
    own = {key: value for key, value in os.environ.items() if key not in INHERITED}
    interface = choose_interface().variables
    return own | interface | {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextlib.contextmanager
def _start_pair(
    backend: str, devices: tuple[str, str], operations: list[str]
) -> Iterator[_RankPair]:
    with scratch_folder("probe-", for_sockets=False) as folder:
        pair = _RankPair(folder, backend, devices, operations)
        try:
            yield pair
        finally:
            pair.kill()


class _RankPair:
    """Two rank processes that try operations one after the other, and their messages."""

    def __init__(
        self, folder: Path, backend: str, devices: tuple[str, str], operations: list[str]
    ) -> None:
        self._messages: queue.SimpleQueue[tuple[int, ProbeMessage]] = queue.SimpleQueue()
        # A rank may be operations ahead of the other, as the sender of a message is.
        self._unread: tuple[deque[ProbeMessage], ...] = (deque(), deque())
        self._logs = [folder / f"rank-{rank}.log" for rank in (0, 1)]
        self._ranks: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        common = ["--backend", backend, "--store", str(folder / "store"), "--operations"]
        for rank, device in enumerate(devices):
            own = ["rank", "--rank", str(rank), "--device", device]
            self._start(rank, [*PROGRAM, *own, *common, *operations])

    def _start(self, rank: int, command: list[str]) -> None:
        with self._logs[rank].open("w") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=probe_environment()
            )
        self._ranks.append(process)
        reader = threading.Thread(target=self._read, args=(rank, process), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # Libraries may print lines of their own.
            with contextlib.suppress(json.JSONDecodeError):
                self._messages.put((rank, json.loads(line)))
        self._messages.put((rank, None))

    def wait_until_ready(self) -> OperationResult | None:
        """Wait for both ranks to join; return the result of all operations if they do not."""
        received = self._receive(START_S)
        if None in received.values():
            why = f"the process group could not be created: {self._how_rank_ended(received)}"
            return OperationResult("no", why)
        if len(received) < 2:
            why = f"the process group was not created within {START_S:g} s"
            return OperationResult("hangs", why)
        return None

    def wait_for(self, operation: str) -> tuple[OperationResult, bool]:
        """Return the result of both ranks, and whether the pair can continue."""
        received = self._receive(OPERATION_S)
        if None in received.values():
            return OperationResult("no", self._how_rank_ended(received)), False
        messages = [message for message in received.values() if message is not None]
        assert all(message["operation"] == operation for message in messages)
        has_both = len(messages) == 2
        for message in messages:
            if not message["ok"]:
                return OperationResult("no", message["reason"]), has_both
        if not has_both:
            return OperationResult("hangs", f"no result within {OPERATION_S:g} s"), False
        return OperationResult("yes"), True

    def _receive(self, seconds: float) -> dict[int, ProbeMessage]:
        """Return the next message of each rank, by rank.

        A rank without a message in time is left out. After a failure of one rank, the other one
        has only `GRACE_S` left.
        """
        received: dict[int, ProbeMessage] = {}
        deadline = time.monotonic() + seconds
        while True:
            for rank, unread in enumerate(self._unread):
                if unread and rank not in received:
                    received[rank] = message = unread.popleft()
                    if message is None or not message.get("ok", True):
                        deadline = min(deadline, time.monotonic() + GRACE_S)
            if len(received) == 2:
                return received
            try:
                rank, message = self._messages.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return received
            self._unread[rank].append(message)

    def _how_rank_ended(self, received: dict[int, ProbeMessage]) -> str:
        """Return how the rank ended that ended first, with the last line of its log."""
        rank = next(rank for rank, message in received.items() if message is None)
        try:
            code = self._ranks[rank].wait(GRACE_S)
        except subprocess.TimeoutExpired:
            how = "closed its output"
        else:
            if code < 0:
                how = f"was killed by {formatting.signal_name(-code)}"
            else:
                how = f"exited with code {code}"
        lines = self._logs[rank].read_text(errors="replace").strip().splitlines()
        if not lines:
            return f"rank {rank} {how}"
        return f"rank {rank} {how}: {lines[-1].strip().removeprefix('what():').strip()}"

    def kill(self) -> None:
        """Kill both ranks and wait for their end; they have no children of their own."""
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()
        for process, reader in zip(self._ranks, self._readers, strict=True):
            reader.join(GRACE_S)
            assert process.stdout is not None
            process.stdout.close()
