"""The faults: what is done to a process, and at which moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.faults.cases import Case
from tests.faults.trial import EVERY, FaultError, Trial, wait_until
from tests.faults.user.sitecustomize import EXHAUST, EXIT, RAISE

SIGNALS = {
    "raises": RAISE,
    "exits 0": EXIT,
    "memory": EXHAUST,
    "SIGTERM": signal.SIGTERM,
    "SIGKILL": signal.SIGKILL,
    "SIGSTOP": signal.SIGSTOP,
    "SIGSTOP 30 s": signal.SIGSTOP,
}
CAUGHT_S = 1.0
HELD_S = {"start": 1.2, "training": 2.5, "evaluation": 3.0, "checkpoint": 3.0, "end": 2.0}


def target_rank(case: Case) -> int:
    return case.random.randrange(2)


def wait_for_moment(trial: Trial, case: Case) -> psutil.Process:
    """Wait for a random moment in the phase of the case, and return the target's process."""
    rank = target_rank(case)
    find: dict[str, Callable[[], psutil.Process]] = {
        "rank": lambda: trial.rank(rank),
        "script": lambda: trial.rank(rank),
        "loader": lambda: trial.loader(rank),
        "launcher": trial.launcher,
        "supervisor": trial.supervisor,
        "viewer": lambda: psutil.Process(trial.viewer.pid),
    }
    if case.phase == "start":
        _ = trial.record  # a viewer that ends before it has made a record has done nothing
        process = find[case.target]()
    else:
        _wait_for_phase(trial, case, rank)
        process = find[case.target]()
    wait_until(lambda: _is_prepared(process))
    time.sleep(case.random.uniform(0.0, 0.7 * HELD_S[case.phase]))
    return process


def _wait_for_phase(trial: Trial, case: Case, rank: int) -> None:
    rank = 0 if case.phase == "checkpoint" else rank  # the one that writes

    def reached() -> bool:
        phase, step = trial.phase(rank)
        if phase == case.phase and (phase != "training" or step > EVERY):
            return True
        if not trial.record.state.live:
            raise FaultError(f"ended before {case.phase}: {trial.record.state.reason}")
        return False

    wait_until(reached)


def _is_prepared(process: psutil.Process) -> bool:
    """Return whether the process catches the signals of sitecustomize; a loader inherits that."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (RAISE - 1) & 1)


def inject(process: psutil.Process, case: Case, trial: Trial) -> None:
    """Do it. Raises FaultError where the process has just ended."""
    try:
        os.kill(process.pid, SIGNALS[case.fault])
        if (case.target, case.fault) == ("launcher", "raises"):
            # While it imports torch, a library may catch the exception: then raise it again.
            log = trial.record.dir / "logs" / "launcher.log"
            time.sleep(CAUGHT_S)
            while process.is_running() and "injected error" not in log.read_text("utf-8"):
                os.kill(process.pid, SIGNALS[case.fault])
                time.sleep(CAUGHT_S)
    except ProcessLookupError:
        raise FaultError("the target had ended before") from None
