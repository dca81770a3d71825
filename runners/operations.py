"""Which collective operations work here: tried live by pairs of processes that cannot hang us.

Starts `runners.probe` in pairs, bounds every wait, and ends what it started. A failed operation
may leave a group out of step, so a failure is believed only from a group without an earlier one.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from runners import words
from runners.launchers import FOREIGN
from runners.network import sockets

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
START_S = 90.0
OPERATION_S = 15.0
GRACE_S = 2.0
PROGRAM = [sys.executable, "-P", "-m", "runners.probe"]

Message = dict[str, Any] | None


class Cell(msgspec.Struct, frozen=True):
    """Whether an operation gave the right result; `reason` where it is not "yes"."""

    answer: Literal["yes", "no", "hangs", "n/a"]
    reason: str = ""


def probe_operations(
    backend: str, devices: tuple[str, str], told: Callable[[str], None] = lambda text: None
) -> dict[str, Cell]:
    """Try every operation between two processes on `devices`, e.g. ("cpu", "cpu").

    `told` hears the name of each operation as its answer comes.
    """
    cells: dict[str, Cell] = {}
    left = list(OPERATIONS)
    while left:
        with _pair(backend, devices, left) as pair:
            if trouble := pair.trouble_at_start():
                return cells | dict.fromkeys(left, trouble)
            for operation, cell in _believed(pair, left):
                cells[operation] = cell
                told(operation)
        left = [operation for operation in left if operation not in cells]
    return cells


def _believed(pair: _Pair, operations: list[str]) -> Iterator[tuple[str, Cell]]:
    """Answers up to the one that must be asked again of a fresh pair, or that ended this one."""
    failed_before = False
    for operation in operations:
        cell, goes_on = pair.outcome(operation)
        failed = cell.answer != "yes"
        if failed and failed_before:
            return
        yield operation, cell
        failed_before |= failed
        if not goes_on:
            return


def environment() -> dict[str, str]:
    """Of the probe's processes: ours, without the traces of a launcher, as the ranks of a run."""
    ours = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    return ours | sockets().variables | {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextlib.contextmanager
def _pair(backend: str, devices: tuple[str, str], operations: list[str]) -> Iterator[_Pair]:
    with tempfile.TemporaryDirectory(prefix="distrain-probe-") as folder:
        pair = _Pair(Path(folder), backend, devices, operations)
        try:
            yield pair
        finally:
            pair.end()


class _Pair:
    """Two ranks and what they have said; a message of None is the end of a rank's output."""

    def __init__(
        self, folder: Path, backend: str, devices: tuple[str, str], operations: list[str]
    ) -> None:
        self._messages: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        # A rank may be operations ahead of the other, as the sender of a message is.
        self._waiting: tuple[deque[Message], ...] = (deque(), deque())
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
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
            )
        self._ranks.append(process)
        reader = threading.Thread(target=self._read, args=(rank, process), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                self._messages.put((rank, json.loads(line)))
        self._messages.put((rank, None))

    def trouble_at_start(self) -> Cell | None:
        """Wait for both ranks to be in the group; a cell that holds for every operation if not."""
        heard = self._hear(START_S)
        if None in heard.values():
            return Cell("no", f"the group was not made: {self._death(heard)}")
        if len(heard) < 2:
            return Cell("hangs", f"the group was not made within {START_S:g} s")
        return None

    def outcome(self, operation: str) -> tuple[Cell, bool]:
        """The answer of both ranks, and whether they can go on."""
        heard = self._hear(OPERATION_S)
        if None in heard.values():
            return Cell("no", self._death(heard)), False
        said = [message for message in heard.values() if message is not None]
        assert all(message["operation"] == operation for message in said)
        both = len(said) == 2
        for message in said:
            if not message["ok"]:
                return Cell("no", message["reason"]), both
        if not both:
            return Cell("hangs", f"no result within {OPERATION_S:g} s"), False
        return Cell("yes"), True

    def _hear(self, seconds: float) -> dict[int, Message]:
        """The next message of each rank; fewer where time runs out, soon after a failure."""
        heard: dict[int, Message] = {}
        deadline = time.monotonic() + seconds
        while True:
            for rank, waiting in enumerate(self._waiting):
                if waiting and rank not in heard:
                    heard[rank] = message = waiting.popleft()
                    if message is None or not message.get("ok", True):
                        deadline = min(deadline, time.monotonic() + GRACE_S)
            if len(heard) == 2:
                return heard
            try:
                rank, message = self._messages.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return heard
            self._waiting[rank].append(message)

    def _death(self, heard: dict[int, Message]) -> str:
        """How the rank ended that ended first, with the last line that it left."""
        rank = next(rank for rank, message in heard.items() if message is None)
        try:
            code = self._ranks[rank].wait(GRACE_S)
            how = f"was killed by {words.signal_name(-code)}" if code < 0 else f"left with {code}"
        except subprocess.TimeoutExpired:
            how = "fell silent"
        lines = self._logs[rank].read_text(errors="replace").strip().splitlines()
        return f"rank {rank} {how}" + (f": {lines[-1].strip()}" if lines else "")

    def end(self) -> None:
        """Kill what still runs and collect it; the ranks have no children of their own."""
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()
        for process, reader in zip(self._ranks, self._readers, strict=True):
            reader.join(GRACE_S)
            assert process.stdout is not None
            process.stdout.close()
