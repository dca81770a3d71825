"""Why a run ended, decided from what the supervisor observed."""

from __future__ import annotations

import errno
import signal
from typing import Any

import pytest
from msgspec import structs

from distrain.runners.protocol.events import Exited, Failure, Finished, Job, NonFinite
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.first_failure import REACTION_S
from distrain.runners.supervision.observed_outcome import judge_observed
from distrain.runners.supervision.outcome import judge, supervisor_failure
from distrain.runners.system.limits import limit_hint

SOON, LATER = REACTION_S / 2, REACTION_S * 20
MISMATCH = Stall(
    since=0.0,
    ranks=[0, 1, 2],
    waiting="",
    mismatch="the ranks call different collectives as number 7",
    positions=[RankPosition(rank=rank, since=0.0, step=20) for rank in range(3)],
)
WATCHDOG = "[PG ID 0 Rank 0] Process group watchdog thread terminated with exception:"


def failure(rank: int, message: str = "my mistake", **more: Any) -> Failure:
    more.setdefault("error", "ValueError")
    return Failure(time=0.0, rank=rank, message=message, **more)


def secondary_failure(rank: int) -> Failure:
    """Return the failure of a rank that was taken down by another."""
    return failure(rank, "Connection closed by peer", error="DistNetworkError", secondary=True)


def finished(*ranks: int, stopped: bool = False, step: int = 40) -> dict[int, Finished]:
    return {rank: Finished(time=0.0, rank=rank, step=step, stopped=stopped) for rank in ranks}


def exits(**codes: int) -> dict[int, Exited]:
    """exits(r1=-9): rank 1 was killed."""
    ranks = {int(name[1:]): code for name, code in codes.items()}
    return {r: Exited(time=0.0, rank=r, pid=100 + r, code=code) for r, code in ranks.items()}


FAILED: dict[str, tuple[dict[str, Any], int | None, str, str, list[int]]] = {
    # the evidence; then the rank and type of the error, a part of its message, the secondary ranks
    "a rank raises": (
        {"failures": {1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [],
    ),
    "a rank raises, and takes another down": (
        {"failures": {1: (5.0, failure(1)), 0: (5.1, secondary_failure(0))}},
        1, "ValueError", "my mistake", [0],
    ),
    "the secondary failure arrives first": (
        {"failures": {0: (4.9, secondary_failure(0)), 1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [0],
    ),
    "two ranks raise: the first is reported, the second is not secondary": (
        {"failures": {0: (5.2, failure(0, "no second")), 1: (5.0, failure(1, "no first"))}},
        1, "ValueError", "no first", [],
    ),
    "the launcher ends the others by SIGTERM": (
        {
            "failures": {1: (5.0, failure(1))},
            "disconnected": {0: 5.0 + LATER, 2: 5.0 + LATER},
            "exits": exits(r0=-signal.SIGTERM, r1=1, r2=-signal.SIGTERM),
        },
        1, "ValueError", "my mistake", [0, 2],
    ),
    "a rank is killed, the others lose their connection": (
        {
            "failures": {0: (5.0 + SOON, secondary_failure(0))},
            "disconnected": {1: 5.0},
            "exits": exits(r1=-signal.SIGKILL),
            "steps": {0: 18, 1: 17},
        },
        1, "SIGKILL", "killed by SIGKILL after step 17 (manually or by the OOM killer)", [0],
    ),
    "the failure caused by a killed rank arrives first": (
        {
            "failures": {0: (5.0, secondary_failure(0))},
            "disconnected": {1: 5.0 + LATER},
            "exits": exits(r1=-signal.SIGKILL),
        },
        1, "SIGKILL", "before its first step", [0],
    ),
    "a rank crashes": (
        {"disconnected": {0: 5.0}, "exits": exits(r0=-signal.SIGSEGV), "steps": {0: 3}},
        0, "SIGSEGV", "killed by SIGSEGV after step 3", [],
    ),
    "a rank exits without a report": (
        {"disconnected": {1: 5.0}, "exits": exits(r1=5), "steps": {1: 20}},
        1, "Exit", "exited with code 5 after step 20 without reporting an error", [],
    ),
    "a rank disconnects without an exit code": (
        {"disconnected": {1: 5.0}, "failures": {0: (5.0 + SOON, secondary_failure(0))}},
        1, "Vanished", "disconnected before its first step without reporting an error", [0],
    ),
    "a node agent is killed, and its ranks die with it": (
        {
            "disconnected": {1: 5.0, 0: 5.0},
            "lost_agents": {"n1": 5.0 + SOON},
            "failures": {2: (5.0 + SOON, secondary_failure(2))},
            "steps": {0: 4, 1: 4, 2: 4},
        },
        None, "HostLost", "n1 left the run: the process that starts its ranks was killed or has ",
        [0, 1, 2],
    ),
    "somebody ends a node agent by SIGTERM, which ends its ranks": (
        {
            "disconnected": {1: 5.0 + SOON},
            "lost_agents": {"n1": 5.0},
            "agent_signals": {"n1": signal.SIGTERM},
            "failures": {0: (5.1, failure(0)), 2: (5.1, secondary_failure(2))},
            "hosts": {0: "n1", 1: "n1", 2: "n2"},
        },
        None, "HostLost", "n1 left the run: the process that starts its ranks was ended by SIGTERM",
        [0, 1, 2],
    ),
    "a node agent is killed, and the ends of its ranks are noticed first": (
        {
            "disconnected": {1: 5.0, 0: 5.0},
            "lost_agents": {"n1": 5.0 + LATER},
            "failures": {2: (5.0 + SOON, secondary_failure(2))},
            "hosts": {0: "n1", 1: "n1", 2: "n2"},
        },
        None, "HostLost", "n1 left the run: the process that starts its ranks was killed or has ",
        [0, 1, 2],
    ),
    "a scheduler ends the nodes after a hang": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "disconnected": {1: 5.0 + LATER},
            "lost_agents": {"n1": 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait", [0, 2],
    ),
    "the launcher is killed, and its ranks die with it": (
        {
            "disconnected": {1: 5.0, 0: 5.0},
            "launcher_killed": True,
            "launcher_code": -signal.SIGKILL,
        },
        None, "LauncherFailed", "the launcher was killed by SIGKILL while its ranks ran", [],
    ),
    "somebody ends the launcher by SIGTERM, and a rank has an error of it": (
        {
            "disconnected": {1: 5.0 + SOON},
            "failures": {0: (5.1, failure(0)), 2: (5.1, secondary_failure(2))},
            "launcher_signal": signal.SIGTERM,
            "launcher_signalled": 5.0,
            "launcher_killed": True,
            "launcher_code": -signal.SIGKILL,
        },
        None, "LauncherFailed", "the launcher was killed by SIGTERM while its ranks ran", [],
    ),
    "a rank is killed before it connects, and the launcher ends the other": (
        {
            "disconnected": {0: 5.0},
            "exits": exits(r1=-signal.SIGKILL, r0=-signal.SIGTERM),
            "launcher_code": 1,
        },
        1, "SIGKILL", "killed by SIGKILL before its first step", [],
    ),
    "a rank is ended by SIGTERM before it connects": (
        {
            "disconnected": {0: 5.0},
            "exits": exits(r1=-signal.SIGTERM, r0=-signal.SIGTERM),
            "launcher_code": 1,
        },
        1, "SIGTERM", "killed by SIGTERM before its first step", [],
    ),
    "every rank refuses the same config": (
        {"failures": {r: (5.0 - r, failure(r, f"message {r}", usage=True)) for r in range(3)}},
        0, "ValueError", "message 0", [],
    ),
    "a refused config is reported before its consequences": (
        {"failures": {0: (4.0, failure(0)), 2: (5.0, failure(2, "no such metric", usage=True))}},
        2, "ValueError", "no such metric", [],
    ),
    "one rank hangs and the others' collective times out": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "disconnected": {1: 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
            "steps": {0: 20, 1: 19, 2: 20},
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait; "
        "last seen: rank 0 at step 20, rank 1 at step 19", [0, 2],
    ),
    "ranks wait for each other in different collectives, until these time out": (
        {
            "failures": {r: (5.0, secondary_failure(r)) for r in range(3)},
            "mismatched": MISMATCH,
            "steps": {0: 20, 1: 20, 2: 20},
        },
        None, "Hang", "the ranks call different collectives as number 7; last seen: rank 0", [],
    ),
    "one of them is ended by the launcher before its own collective has timed out": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "disconnected": {1: 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
            "mismatched": MISMATCH,
            "steps": {0: 20, 1: 20, 2: 20},
        },
        None, "Hang", "the ranks call different collectives as number 7; last seen: rank 0", [],
    ),
    "ranks have waited in different collectives, and have gone on since": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "disconnected": {1: 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
            "mismatched": MISMATCH,
            "steps": {0: 22, 1: 21, 2: 22},
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait", [0, 2],
    ),
    "the first collective fails: a firewall may be between the ranks": (
        {
            "failures": {
                0: (5.1, secondary_failure(0)),
                2: (5.0, failure(2, "client socket has timed out\n\n", secondary=True)),
            },
        },
        1, "Hang", "others wait; last seen: rank 0 at step 0, rank 1 at step 0, rank 2 at step 0; "
        "rank 2: client socket has timed out", [0, 2],
    ),
    "a rank is stopped by a signal, and torchrun kills it 30 s after the others have failed": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "disconnected": {1: 35.0},
            "exits": exits(r0=1, r1=-signal.SIGKILL, r2=1),
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait", [0, 2],
    ),
    "one rank has exited in good order, and the others wait for it": (
        {
            "failures": {0: (5.0, secondary_failure(0)), 2: (5.0, secondary_failure(2))},
            "finished": {1: Finished(time=4.0, rank=1, step=19)},
        },
        1, "Hang", "rank 1 has ended and is absent from a collective in which the others wait",
        [0, 2],
    ),
    "a rank hangs, and NCCL's watchdog aborts those that wait for it": (
        {
            "watchdog_aborts": True,
            "disconnected": {0: 5.0, 2: 5.01, 1: 5.0 + LATER},
            "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGTERM, r2=-signal.SIGABRT),
            "steps": {0: 20, 1: 19, 2: 20},
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait", [0, 2],
    ),
    "a rank is killed, and NCCL's watchdog aborts those that wait for it": (
        {
            "watchdog_aborts": True,
            "disconnected": {1: 4.0, 0: 5.0, 2: 5.01},
            "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGKILL, r2=-signal.SIGABRT),
        },
        1, "SIGKILL", "killed by SIGKILL", [0, 2],
    ),
    "NCCL's watchdog aborts all ranks": (
        {"watchdog_aborts": True, "disconnected": {0: 5.1, 1: 5.0, 2: 5.2},
         "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGABRT, r2=-signal.SIGABRT)},
        1, "SIGABRT", "killed by SIGABRT", [0, 2],
    ),
    "a program fails, and the ranks that it has started end with it": (
        {
            "is_script": True,
            "program_failure": failure(0),
            "program_failed": 5.0,
            "disconnected": {0: 5.1, 1: 5.2},
            "launcher_code": 1,
        },
        None, "ValueError", "the program that started the ranks failed: ValueError: my mistake", [],
    ),
    "a program fails because of a rank that it has started": (
        {
            "is_script": True,
            "program_failure": failure(0),
            "program_failed": 5.1,
            "disconnected": {1: 5.0, 0: 5.2},
            "launcher_code": 1,
        },
        1, "Vanished", "disconnected", [],
    ),
    "a rank aborts without NCCL: it failed by itself": (
        {
            "disconnected": {1: 5.0},
            "exits": exits(r1=-signal.SIGABRT),
            "failures": {0: (5.1, secondary_failure(0))},
        },
        1, "SIGABRT", "killed by SIGABRT", [0],
    ),
    "a rank aborts by itself, and Horovod shuts the others down": (
        {
            "watchdog_aborts": True,
            "disconnected": {1: 5.0},
            "exits": exits(r1=-signal.SIGABRT),
            "failures": {0: (5.1, secondary_failure(0)), 2: (5.2, secondary_failure(2))},
        },
        1, "SIGABRT", "killed by SIGABRT", [0, 2],
    ),
    "NCCL's watchdog finds an error of a device, and the launcher ends the others": (
        {
            "watchdog_aborts": True,
            "disconnected": {1: 5.0, 0: 5.0 + LATER, 2: 5.0 + LATER},
            "exits": exits(r0=-signal.SIGTERM, r1=-signal.SIGABRT, r2=-signal.SIGTERM),
            "last_words": {1: f"{WATCHDOG} CUDA error: device-side assert triggered"},
        },
        1, "SIGABRT", "CUDA error: device-side assert triggered", [],
    ),
    "a rank of a script hangs, and NCCL's watchdog aborts those that wait for it": (
        {
            "is_script": True,
            "disconnected": {0: 5.0, 1: 5.0 + LATER, 2: 5.01},
            "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGTERM, r2=-signal.SIGABRT),
            "launcher_code": 1,
            "last_words": {
                rank: f"{WATCHDOG} [Rank {rank}] Watchdog caught collective operation timeout: Work"
                for rank in (0, 2)
            },
        },
        1, "Hang", "rank 1 is absent from a collective in which the others wait", [0, 2],
    ),
    "a rank exits before it has reported a step": (
        {"disconnected": {1: 5.0}, "exits": exits(r1=3), "steps": {0: 4}},
        1, "Exit", "exited with code 3 before it reported a step", [],
    ),
    "the launcher is killed, and a rank of another host notices": (
        {
            "failures": {1: (5.1, secondary_failure(1))},
            "disconnected": {0: 5.0},
            "launcher_killed": True,
            "launcher_code": -signal.SIGKILL,
        },
        None, "LauncherFailed", "the launcher was killed by SIGKILL while its ranks ran", [],
    ),
    "a rank cannot even connect, and the launcher is ended for it": (
        {"exits": exits(r1=1), "launcher_code": -signal.SIGTERM, "launcher_killed": True},
        1, "Exit", "exited with code 1 before its first step", [],
    ),
    "a rank cannot even connect, and its launcher exits with the same code": (
        {
            "reports_exits": True,
            "disconnected": {0: 5.0},
            "exits": exits(r1=1, r0=-signal.SIGTERM),
            "launcher_code": 1,
            "last_words": {1: "can't start new thread"},
        },
        1, "Exit", "without reporting an error; its last output: can't start new thread", [],
    ),
    "the only rank, which is the launcher, exits before it connects": (
        {
            "launcher_is_rank": True,
            "exits": exits(r0=1),
            "launcher_code": 1,
            "launcher_log": "no torch",
        },
        None, "LauncherFailed", "before its ranks did; its last output: no torch", [],
    ),
    "a rank is ended by a signal that has no name": (
        {"disconnected": {1: 5.0}, "exits": exits(r1=-40)},
        1, "signal 40", "killed by signal 40", [],
    ),
    "two ranks hang": (
        {"failures": {2: (5.0, secondary_failure(2))}},
        0, "Hang", "rank 0 and rank 1 are absent from a collective", [2],
    ),
    "all ranks lose a connection and none failed by itself": (
        {
            "failures": {
                0: (5.1, secondary_failure(0)),
                1: (5.0, secondary_failure(1)),
                2: (5.2, secondary_failure(2)),
            }
        },
        1, "DistNetworkError", "Connection closed", [0, 2],
    ),
    "the launcher does not start": (
        {"launcher_code": 1, "launcher_log": "Traceback …\n  …\nImportError: no torch\n"},
        None, "LauncherFailed", "before its ranks did; its last output: ImportError: no torch", [],
    ),
    "the launcher fails, and has ended its ranks": (
        {
            "reports_exits": True,
            "failures": {0: (5.0 + SOON, secondary_failure(0))},
            "disconnected": {1: 5.0},
            "launcher_code": 1,
            "launcher_log": "MemoryError\n",
        },
        None, "LauncherFailed", "exited with code 1 before its ranks did; its last output: MemoryE",
        [],
    ),
    "the launcher is killed before it prints anything": (
        {"launcher_code": -9},
        None, "LauncherFailed", "the launcher was killed by SIGKILL while its ranks ran", [],
    ),
    "the launcher ends while ranks have not finished": (
        {"launcher_code": 0, "finished": finished(0, 1)},
        None, "LauncherFailed", "code 0", [],
    ),
    "the loss is not finite, and all ranks leave in order for it": (
        {
            "nonfinite": NonFinite(time=0.0, rank=1, step=18, loss="nan"),
            "stop_requested": True,
            "finished": finished(0, 1, 2, stopped=True),
        },
        1, "NonFiniteLoss", "the loss became nan at step 18", [],
    ),
    "a rank fails in a job that Slurm has forgotten meanwhile": (
        {
            "failures": {1: (5.0, failure(1))},
            "job": Job(time=0.0, id="7", state="UNKNOWN", ended="it is unknown how job 7 ended"),
            "launcher_code": 1,
        },
        1, "ValueError", "my mistake", [],
    ),
    "Slurm has forgotten a job whose ranks were gone without a report": (
        {
            "disconnected": {0: 5.0, 1: 5.0, 2: 5.0},
            "job": Job(time=0.0, id="7", state="UNKNOWN", ended="it is unknown how job 7 ended"),
            "launcher_code": 1,
        },
        None, "JobEnded", "it is unknown how job 7 ended", [0, 1, 2],
    ),
    "a rank fails while all are stopping": (
        {"stop_requested": True, "failures": {1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILED)
def test_a_failed_run_reports_the_first_failure(case: str) -> None:
    evidence, rank, kind, part, secondary = FAILED[case]
    outcome = judge(Evidence(world_size=3, **evidence))
    error = outcome.error
    assert outcome.status == "failed"
    assert error is not None
    assert (error.rank, error.type) == (rank, kind)
    assert part in error.message
    assert error.secondary == secondary
    named = rank is None or kind == "Hang"
    assert outcome.reason == (error.message if named else f"rank {rank}: {error.message}")


def test_the_reason_is_one_line() -> None:
    long = structs.replace(failure(1), message="NCCL error:\n  unhandled\n")
    outcome = judge(Evidence(world_size=3, failures={1: (5.0, long)}))
    assert outcome.reason == "rank 1: NCCL error: unhandled"


@pytest.mark.parametrize("key", ["'labels'", "'Unnamed: 0'"])
def test_the_reason_names_the_error_of_a_message_that_is_only_a_key(key: str) -> None:
    missing = structs.replace(failure(1), error="KeyError", message=key)
    outcome = judge(Evidence(world_size=2, failures={1: (5.0, missing)}))
    assert outcome.reason == f"rank 1: KeyError: {key}"


def test_the_error_keeps_traceback_step_and_usage() -> None:
    failed = failure(1, traceback="Traceback …", step=12, usage=True)
    error = judge(Evidence(world_size=2, failures={1: (5.0, failed)})).error
    assert error is not None
    assert (error.traceback, error.step, error.usage) == ("Traceback …", 12, True)


def test_a_hang_shows_where_another_rank_waited() -> None:
    failed = failure(0, traceback="Traceback …", secondary=True)
    error = judge(Evidence(world_size=2, failures={0: (5.0, failed)})).error
    assert error is not None
    assert error.traceback == "rank 0 waited here:\nTraceback …"


def test_the_output_of_a_launcher_is_kept_whole() -> None:
    error = judge(Evidence(world_size=2, launcher_code=1, launcher_log="a\nb\n")).error
    assert error is not None
    assert error.traceback == "a\nb\n"


ENDED = {
    "completed all steps": ({"finished": finished(0, 1)}, "completed", "completed all steps"),
    "stopped in order": (
        {"finished": finished(0, 1, stopped=True), "stop_requested": True},
        "stopped",
        "after step 40",
    ),
    "a stop that came too late": (
        {"finished": finished(0, 1), "stop_requested": True},
        "completed",
        "completed all steps",
    ),
    "stopped immediately": ({"stopped_now": True}, "stopped", "without a checkpoint"),
    "stopped at once while others had failed of it": (
        {"stopped_now": True, "failures": {0: (5.0, secondary_failure(0))}},
        "stopped",
        "without a checkpoint",
    ),
    "a stop that had to be forced": (
        {"stop_requested": True, "stop_overdue": True, "steps": {0: 7}},
        "stopped",
        "took too long and was forced; last seen: rank 0 at step 7, rank 1 at step 0",
    ),
    "a stop that had to be forced, with its cause": (
        {"stop_requested": True, "stop_overdue": True, "stop_delay": "rank 1 is in data"},
        "stopped",
        "and was forced: rank 1 is in data; last seen: ",
    ),
    "a process that cannot be killed": (
        {"stopped_now": True, "survivors": "process 7 has not ended after SIGKILL"},
        "stopped",
        "without a checkpoint; process 7 has not ended after SIGKILL",
    ),
    "a shutdown": (
        {"stop_requested": True, "has_received_sigterm": True, "launcher_signal": 15},
        "stopped",
        "all its processes received SIGTERM, as at a shutdown",
    ),
    "a shutdown in which the launcher waits for its ranks for too long": (
        {
            "stop_requested": True,
            "has_received_sigterm": True,
            "launcher_signal": 15,
            "launcher_ended": True,
            "disconnected": {0: 5.0, 1: 5.0},
        },
        "stopped",
        "all its processes received SIGTERM, as at a shutdown",
    ),
    "a shutdown that the launcher did not report": (
        {
            "stop_requested": True,
            "has_received_sigterm": True,
            "launcher_code": -15,
            "disconnected": {0: 5.0, 1: 5.0},
        },
        "stopped",
        "all its processes received SIGTERM, as at a shutdown",
    ),
    "done before the forced end": (
        {"stop_requested": True, "stopped_now": True, "finished": finished(0, 1)},
        "completed",
        "completed all steps",
    ),
}


@pytest.mark.parametrize("case", ENDED)
def test_the_outcome_of_a_run_that_did_not_fail(case: str) -> None:
    evidence, status, part = ENDED[case]
    outcome = judge(Evidence(world_size=2, **evidence))
    assert (outcome.status, outcome.error) == (status, None)
    assert part in outcome.reason


def test_a_failure_of_the_supervisor_is_reported_as_such() -> None:
    outcome = supervisor_failure(OSError("disk full"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.type == "OSError"
    assert "the supervisor failed (disk full)" in outcome.reason
    limited = OSError(errno.EMFILE, "Too many open files")
    assert f"(Too many open files{limit_hint(errno.EMFILE)})" in supervisor_failure(limited).reason


def test_a_rank_that_vanishes_before_the_agent_of_another_host_is_named() -> None:
    evidence = Evidence(
        world_size=3,
        disconnected={1: 5.0},
        lost_agents={"n2": 5.0 + LATER},
        failures={0: (5.0 + SOON, secondary_failure(0))},
        hosts={0: "n1", 1: "n1", 2: "n2"},
    )
    error = judge(evidence).error
    assert error is not None
    assert (error.rank, error.type, error.host) == (1, "Vanished", "n1")


# --- scripts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "status", "reason"),
    [
        ({"finished": finished(0, 1, step=0)}, "completed", "all processes exited with code 0"),
        # It may have closed its connection and ended well all the same.
        ({"disconnected": {0: 5.0, 1: 5.0}}, "completed", "all processes exited with code 0"),
        # As a shell script that pipes the output of its ranks to another program.
        (
            {"failures": {1: (5.0, failure(1)), 0: (5.1, secondary_failure(0))}},
            "completed",
            "the program exited with code 0 although rank 1 failed: ValueError: my mistake",
        ),
        (
            {"disconnected": {0: 5.0}, "outlived": [0]},
            "completed",
            "the program exited with code 0 and did not wait for rank 0, which was ended with it",
        ),
        (
            {"finished": finished(0, 1), "exits": exits(r1=-11), "launcher_code": 1},
            "failed",
            "rank 1: killed by SIGSEGV",
        ),
        (
            {"disconnected": {0: 5.0}, "exits": exits(r0=4), "launcher_code": 4},
            "failed",
            "rank 0: exited with code 4 without reporting an error",
        ),
        # The launcher has started rank 0 only, and an agent on another host has started rank 1.
        (
            {"finished": finished(0), "disconnected": {1: 5.0}, "exits": exits(r1=3)},
            "failed",
            "rank 1: exited with code 3 without reporting an error",
        ),
        (
            {"finished": finished(0, 1), "exits": exits(r1=-11)},
            "failed",
            "rank 1: killed by SIGSEGV",
        ),
        (
            {
                "failures": {1: (5.0, failure(1, error="KeyboardInterrupt"))},
                "stop_requested": True,
                "interrupted": True,
                "launcher_code": 1,
            },
            "stopped",
            "interrupted on request",
        ),
        (
            {
                "failures": {1: (5.0, failure(1, "disk full", error="OSError"))},
                "finished": finished(0, stopped=True, step=7),
                "stop_requested": True,
                "launcher_code": 1,
            },
            "stopped",
            "stopped on request in step 7; then rank 1 failed: OSError: disk full",
        ),
        # Rank 0 waited for one that failed while it saved.
        (
            {
                "failures": {
                    0: (5.1, secondary_failure(0)),
                    1: (5.0, failure(1, "disk full", error="OSError")),
                },
                "stop_requested": True,
                "stop_requested_at": 4.0,
                "launcher_code": 1,
            },
            "stopped",
            "stopped on request; then rank 1 failed: OSError: disk full",
        ),
        (
            {
                "failures": {0: (5.1, secondary_failure(0))},
                "disconnected": {1: 5.0},
                "exits": exits(r1=-11),
                "stop_requested": True,
                "stop_requested_at": 4.0,
                "launcher_code": 1,
            },
            "stopped",
            "stopped on request; then rank 1 failed: killed by SIGSEGV",
        ),
        # It was stopped because nothing happened any more.
        (
            {
                "failures": {1: (5.0, failure(1, "disk full", error="OSError"))},
                "stop_requested": True,
                "stop_requested_at": 9.0,
                "stop_overdue": True,
                "launcher_code": 1,
                "launcher_ended": True,
            },
            "failed",
            "rank 1: disk full",
        ),
        (
            {
                "failures": {1: (5.0, failure(1, "disk full", error="OSError"))},
                "stopped_now": True,
                "stop_requested_at": 9.0,
                "launcher_code": 1,
                "launcher_ended": True,
            },
            "failed",
            "rank 1: disk full",
        ),
        # Its process was stopped because a thread of it did not end.
        (
            {
                "launcher_is_rank": True,
                "failures": {0: (5.0, failure(0))},
                "stop_requested": True,
                "stop_requested_at": 9.0,
                "interrupted": True,
                "launcher_code": 1,
            },
            "failed",
            "rank 0: my mistake",
        ),
        # Its program may have gone on after that.
        (
            {
                "launcher_is_rank": True,
                "ranks_joined": True,
                "failures": {0: (5.0, failure(0))},
                "stop_requested": True,
                "stop_requested_at": 9.0,
                "interrupted": True,
                "launcher_code": 1,
            },
            "stopped",
            "interrupted on request; then rank 0 failed: ValueError: my mistake",
        ),
        # It was stopped because the others waited for a rank that had been killed.
        (
            {
                "disconnected": {1: 5.0, 0: 9.5},
                "exits": exits(r1=-11),
                "stop_requested": True,
                "stop_requested_at": 9.0,
                "interrupted": True,
                "launcher_code": 1,
            },
            "failed",
            "rank 1: killed by SIGSEGV",
        ),
        (
            {
                "disconnected": {1: 5.0, 0: 9.5},
                "exits": exits(r1=-11),
                "stop_requested": True,
                "stop_requested_at": 4.0,
                "interrupted": True,
                "launcher_code": 1,
            },
            "stopped",
            "interrupted on request",
        ),
        (
            {"finished": finished(0, 1, stopped=True, step=7), "stop_requested": True},
            "stopped",
            "stopped on request in step 7",
        ),
        (
            {"finished": finished(0, 1), "stop_requested": True},
            "completed",
            "all processes exited with code 0",
        ),
        (
            {"stop_requested": True, "stop_overdue": True, "interrupted": True},
            "stopped",
            "interrupted on request, and ended because that took too long",
        ),
    ],
)
def test_the_exit_code_of_a_script_decides_unless_it_was_stopped(
    observed: dict[str, Any], status: str, reason: str
) -> None:
    evidence = Evidence(world_size=2, is_script=True, **{"launcher_code": 0, **observed})
    outcome = judge(evidence)
    assert (outcome.status, outcome.reason) == (status, reason)


@pytest.mark.parametrize(
    ("ended", "running", "status", "reason"),
    [
        ([0, 1], [], "completed", "the program has ended"),
        ([0], [], "completed", "the program has ended; rank 1 never connected"),
        ([0], [1], "stopped", "the observer was ended while rank 1 was running"),
        ([], [1, 0], "stopped", "the observer was ended while ranks 0–1 were running"),
        ([], [], "stopped", "ended, cause unknown: no rank has connected"),
    ],
)
def test_an_observer_that_is_ended_says_which_ranks_were_running(
    ended: list[int], running: list[int], status: str, reason: str
) -> None:
    evidence = Evidence(world_size=2, finished=finished(*ended))
    absent = sorted({0, 1} - {*ended, *running})
    found = judge_observed(evidence, absent, running)
    assert (found.status, found.reason) == (status, reason)
