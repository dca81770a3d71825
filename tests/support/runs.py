"""What tests of real runs wait for and look at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from distrain import Run

PATIENCE_S = 90.0


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the live supervisor, launcher, ranks and loader workers of a run."""
    found = []
    for process in psutil.process_iter():
        try:
            belongs = (
                process.environ().get("DISTRAIN_RUN") == str(folder)
                or str(folder) in process.cmdline()
            )
            if belongs and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(holds: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Wait for the first true value and return it; fail the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := holds():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {holds}")


def assert_nothing_left(run: Run) -> None:
    wait_until(lambda: not processes_of(run.record.dir), 10.0)


def steps_of(run: Run) -> dict[int, int]:
    """Return the last step that each rank has reported."""
    return {rank: window.step for rank, window in run.record.latest().items()}
