"""One case from start to end: `python -m tests.faults.case FOLDER TARGET FAULT PHASE LAUNCHER N`.

Prints its result as a line of JSON. It is meant to run in a mount namespace of its own, where it
gives the run its own /dev/shm.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from distrain.runners.errors import DistrainError
from tests.faults import checks
from tests.faults.cases import Case
from tests.faults.expected import HANGS, Expected, expected
from tests.faults.faults import HELD_S, inject, target_rank, wait_for_moment
from tests.faults.trial import EVERY, FaultError, Trial, wait_until, words_of

PAUSE_S = 30.0  # of "SIGSTOP 30 s"
HANG_S = 12.0  # until a collective, or the wait for a batch, gives up
PATIENT_S = 100.0  # the same where the pause is to be survived
RESUME_EVERY = 5  # one of so many repeats is resumed too; the checkpoint of each is checked
BEFORE_S = 3.0  # from the last progress to the fault
END_S = 150.0  # longest wait for the end of a run


@dataclasses.dataclass
class Result:
    """What a case has shown. Times are seconds since the fault."""

    case: Case
    problems: list[str] = dataclasses.field(default_factory=list)
    status: str = ""
    reason: str = ""
    state_s: float | None = None  # until the right state: the end of the run, or a named stall
    gone_s: float | None = None  # from the end of the run until no process is left
    resumed: bool = False

    def as_json(self) -> dict[str, Any]:
        times = {"state_s": self.state_s, "gone_s": self.gone_s}
        rounded = {key: round(value, 2) for key, value in times.items() if value is not None}
        return {
            "case": list(self.case),
            "problems": self.problems,
            "status": self.status,
            "reason": self.reason,
            **rounded,
            "resumed": self.resumed,
        }


def carry_out(case: Case, folder: Path, is_private: bool) -> Result:
    """Start the run, wait for the moment, inject the fault, and check what happens."""
    result = Result(case)
    timeout_s = HANG_S if case.fault == "SIGSTOP" else PATIENT_S
    workers = 2 if case.target == "loader" else 0
    steps = 100 if case.phase == "training" else 60
    held = {
        "phase": case.phase if case.phase != "training" else "",
        "seconds": HELD_S[case.phase],
        "pace": 0.03 if case.phase == "training" else 0.005,
        "steps": steps,
        "every": EVERY,
        "workers": workers // 2,
        "timeout_s": timeout_s,
    }
    words = words_of(
        case.launcher,
        train__max_steps=steps,
        data__workers=workers,
        data__timeout_s=timeout_s,
        dist__timeout_s=timeout_s,
        dist__leader_timeout_s=timeout_s,
    )
    with Trial(folder, held) as trial:
        try:
            trial.start(*words)
            process = wait_for_moment(trial, case)
            record = trial.record
            rows = checks.count_windows(record)
            at = time.time()
            inject(process, case, trial)
            wanted = expected(case)
            result.state_s = _watch(trial, case, wanted, process.pid, at, result.problems)
            result.status, result.reason = record.state.status, record.state.reason
            result.problems += checks.outcome(record, wanted)
            if case.target != "viewer" or case.fault == "SIGSTOP 30 s":
                result.problems += checks.told_by_viewer(trial, record)
            elif case.fault == "SIGSTOP":
                os.kill(process.pid, signal.SIGKILL)
            trial.viewer.wait(checks.GONE_S)
            result.gone_s, problems = checks.nothing_runs(trial)
            result.problems += problems
            result.problems += checks.readable(record, rows)
            result.problems += checks.shown(trial, record)
            result.problems += checks.checkpoint_is_whole(record)
            if case.number % RESUME_EVERY == 0:
                result.resumed, problems = checks.resumes(trial, record)
                result.problems += problems
            if process.pid == record.state.supervisor_pid and not result.resumed:
                trial.distrain("run", "/bin/true")  # the next supervisor removes what is left
            result.problems += checks.nothing_left(trial, is_private)
        except (FaultError, DistrainError, subprocess.TimeoutExpired) as error:
            result.problems.append(str(error))
    return result


def _watch(
    trial: Trial, case: Case, wanted: Expected, pid: int, at: float, problems: list[str]
) -> float | None:
    """Wait for the end, and return the seconds until the state was right, if that is known."""
    timer = threading.Timer(PAUSE_S, _continue, [pid])
    timer.daemon = True
    if case.fault == "SIGSTOP 30 s":
        timer.start()
    state_s = None
    if case.target == "supervisor" and case.fault == "SIGSTOP":
        state_s = _ask_suspended(trial, pid, at, problems)
    elif wanted.notice:
        state_s = _wait_for_notice(trial, pid, at, problems)
        if case.phase == "start":
            _continue(pid)
    elif wanted.stall:
        state_s = _wait_for_stall(trial, case, at, problems)
    ended = trial.wait_for_end(END_S)
    if case.fault == "SIGSTOP 30 s":
        timer.join()
    lasts = not wanted.stall and (case.fault in HANGS or wanted.statuses == ("completed",))
    return state_s if state_s is not None or lasts else ended - at


def _continue(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _ask_suspended(trial: Trial, pid: int, at: float, problems: list[str]) -> float:
    """Stop a run whose supervisor is suspended: that is told; then continue the supervisor."""
    done = trial.distrain("stop", trial.record.id)
    state_s = time.time() - at
    if done.returncode != 1 or f"kill -CONT {pid}" not in done.stderr:
        problems.append(f"stop exited with {done.returncode}: {done.stderr.strip()}")
    os.kill(pid, signal.SIGCONT)
    return state_s


def _wait_for_stall(trial: Trial, case: Case, at: float, problems: list[str]) -> float | None:
    rank = target_rank(case)

    def named() -> bool:
        state = trial.record.state
        if not state.live:
            raise FaultError(f"ended without a stall: {state.reason}")
        stall = state.stall  # and not one of a slow start, before the fault
        return stall is not None and stall.ranks == [rank] and stall.since > at - BEFORE_S

    try:
        wait_until(named, PAUSE_S)
    except FaultError as error:
        problems.append(f"no stall names rank {rank}: {error} ({trial.record.state.stall})")
        return None
    return time.time() - at


def _wait_for_notice(trial: Trial, pid: int, at: float, problems: list[str]) -> float | None:
    def noticed() -> bool:
        texts = [getattr(e, "text", "") for _, e in trial.record.events(kinds=("notice",))]
        return any(f"kill -CONT {pid}" in text for text in texts)

    try:
        wait_until(noticed, PAUSE_S)
    except FaultError as error:
        problems.append(f"no notice names the launcher: {error}")
        return None
    return time.time() - at


def make_private() -> bool:
    """Mount an own /dev/shm, and return whether that is possible."""
    command = ["mount", "-t", "tmpfs", "tmpfs", str(checks.SHARED)]
    own_namespace = os.environ.get("FAULT_NAMESPACE") == "1"
    return own_namespace and subprocess.run(command, capture_output=True).returncode == 0


def main() -> int:
    folder, target, fault, phase, launcher, number = sys.argv[1:]
    case = Case(target, fault, phase, launcher, int(number))
    result = carry_out(case, Path(folder), make_private())
    if not result.problems:
        shutil.rmtree(folder)
    print(json.dumps(result.as_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
