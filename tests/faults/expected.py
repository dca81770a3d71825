"""What has to happen after a fault: the status of the run, and who is to blame."""

from __future__ import annotations

from dataclasses import dataclass

from distrain.runners.records.state import RunError
from tests.faults.cases import Case
from tests.faults.faults import target_rank

HANGS = ("SIGSTOP", "SIGSTOP 30 s")


@dataclass(frozen=True)
class Expected:
    """The `statuses` that are right, the `culprit` of a failed run, and what is told meanwhile.

    `stall`: a stall names the rank. `notice`: a notice names the launcher.
    """

    statuses: tuple[str, ...]
    culprit: str = ""
    stall: bool = False
    notice: bool = False


def expected(case: Case) -> Expected:
    """Return what has to happen."""
    if case.target == "viewer":
        return Expected(("completed",))
    if case.target == "supervisor":
        return _of_supervisor(case)
    culprit = "launcher" if case.target == "launcher" else f"rank {target_rank(case)}"
    if case.phase == "end":  # all is done and saved; of a script its exit code counts too
        is_script = case.launcher == "script" and case.fault not in HANGS
        return Expected(("completed", "failed") if is_script else ("completed",), culprit)
    if case.target == "launcher" and case.fault in HANGS:
        # The ranks train on. Where they were not started yet, the launcher is continued.
        return Expected(("completed",), notice=True)
    # The usual pace is not known before some steps, and of a script only that of its steps.
    has_pace = case.phase == "training" or (case.launcher != "script" and case.phase != "start")
    stall = case.fault in HANGS and has_pace
    if case.fault == "SIGSTOP 30 s":
        return Expected(("completed",), stall=stall)
    return Expected(("failed",), culprit, stall)


def _of_supervisor(case: Case) -> Expected:
    finished = ("completed",) if case.phase == "end" else ()
    if case.fault == "SIGSTOP 30 s":
        return Expected(("completed",))
    if case.fault == "SIGSTOP":  # it is continued after a command has named it, and then stops
        return Expected(("stopped", "completed"))
    if case.fault == "SIGTERM":
        return Expected(("stopped", *finished))
    return Expected(("failed", *finished), "supervisor")


def culprit_of(error: RunError) -> str:
    """Return who a record blames."""
    if error.rank is not None:
        return f"rank {error.rank}"
    return error.log_name
