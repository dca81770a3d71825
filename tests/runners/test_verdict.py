"""Why a run ended, told from what the supervisor saw."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from runners.events import Exited, Failure, Finished, NonFinite
from runners.verdict import AT_ONCE_S, Evidence, broken, judge

SOON, LATER = AT_ONCE_S / 2, AT_ONCE_S * 20


def failure(rank: int, message: str = "my mistake", **more: Any) -> Failure:
    more.setdefault("error", "ValueError")
    return Failure(time=0.0, rank=rank, message=message, **more)


def echo(rank: int) -> Failure:
    """What a rank says that died of another's death."""
    return failure(rank, "Connection closed by peer", error="DistNetworkError", collateral=True)


def finished(*ranks: int, stopped: bool = False, step: int = 40) -> dict[int, Finished]:
    return {rank: Finished(time=0.0, rank=rank, step=step, stopped=stopped) for rank in ranks}


def exits(**codes: int) -> dict[int, Exited]:
    """exits(r1=-9): rank 1 was killed."""
    ranks = {int(name[1:]): code for name, code in codes.items()}
    return {r: Exited(time=0.0, rank=r, pid=100 + r, code=code) for r, code in ranks.items()}


FAILED: dict[str, tuple[dict[str, Any], int | None, str, str, list[int]]] = {
    # what was seen; then the headline's rank, type, a part of its message, and the collateral
    "a rank raises": (
        {"failures": {1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [],
    ),
    "a rank raises, another dies of it": (
        {"failures": {1: (5.0, failure(1)), 0: (5.1, echo(0))}},
        1, "ValueError", "my mistake", [0],
    ),
    "the echo is heard before the failure": (
        {"failures": {0: (4.9, echo(0)), 1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [0],
    ),
    "two ranks raise: the first is the headline, the second no collateral": (
        {"failures": {0: (5.2, failure(0, "second")), 1: (5.0, failure(1, "first"))}},
        1, "ValueError", "first", [],
    ),
    "the launcher ends the others by SIGTERM": (
        {
            "failures": {1: (5.0, failure(1))},
            "vanished": {0: 5.0 + LATER, 2: 5.0 + LATER},
            "exits": exits(r0=-signal.SIGTERM, r1=1, r2=-signal.SIGTERM),
        },
        1, "ValueError", "my mistake", [0, 2],
    ),
    "a rank is killed, the others lose their connection": (
        {
            "failures": {0: (5.0 + SOON, echo(0))},
            "vanished": {1: 5.0},
            "exits": exits(r1=-signal.SIGKILL),
            "steps": {0: 18, 1: 17},
        },
        1, "SIGKILL", "killed by SIGKILL after step 17 (by hand, or by the system", [0],
    ),
    "a killed rank's echo is heard first": (
        {
            "failures": {0: (5.0, echo(0))},
            "vanished": {1: 5.0 + LATER},
            "exits": exits(r1=-signal.SIGKILL),
        },
        1, "SIGKILL", "before its first step", [0],
    ),
    "a rank crashes": (
        {"vanished": {0: 5.0}, "exits": exits(r0=-signal.SIGSEGV), "steps": {0: 3}},
        0, "SIGSEGV", "killed by SIGSEGV after step 3", [],
    ),
    "a rank leaves without a word": (
        {"vanished": {1: 5.0}, "exits": exits(r1=5), "steps": {1: 20}},
        1, "Exit", "left with exit code 5 after step 20 and said nothing", [],
    ),
    "a rank goes away and nobody knows how": (
        {"vanished": {1: 5.0}, "failures": {0: (5.0 + SOON, echo(0))}},
        1, "Vanished", "went away before its first step and said nothing", [0],
    ),
    "what starts a host's ranks is killed, and they die with it": (
        {
            "vanished": {1: 5.0, 0: 5.0},
            "deserted": {"n1": 5.0 + SOON},
            "failures": {2: (5.0 + SOON, echo(2))},
            "steps": {0: 4, 1: 4, 2: 4},
        },
        None, "HostLost", "n1 left the run: what starts and ends the ranks there was killed; ",
        [0, 1, 2],
    ),
    "a scheduler ends the nodes after a hang": (
        {
            "failures": {0: (5.0, echo(0)), 2: (5.0, echo(2))},
            "vanished": {1: 5.0 + LATER},
            "deserted": {"n1": 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
        },
        1, "Hang", "rank 1 is absent from a collective the others wait in", [0, 2],
    ),
    "the launcher is killed, and its ranks die with it": (
        {"vanished": {1: 5.0, 0: 5.0}, "launcher_killed": True, "launcher_code": -signal.SIGKILL},
        None, "LauncherFailed", "the launcher was killed by SIGKILL while its ranks ran", [],
    ),
    "every rank refuses the same config": (
        {"failures": {r: (5.0 - r, failure(r, f"says {r}", usage=True)) for r in range(3)}},
        0, "ValueError", "says 0", [],
    ),
    "a refused config goes before what it brings about": (
        {"failures": {0: (4.0, failure(0)), 2: (5.0, failure(2, "no such metric", usage=True))}},
        2, "ValueError", "no such metric", [],
    ),
    "one rank hangs and the others' collective times out": (
        {
            "failures": {0: (5.0, echo(0)), 2: (5.0, echo(2))},
            "vanished": {1: 5.0 + LATER},
            "exits": exits(r0=1, r1=-signal.SIGTERM, r2=1),
            "steps": {0: 20, 1: 19, 2: 20},
        },
        1, "Hang", "rank 1 is absent from a collective the others wait in; last seen: rank 0 at "
        "step 20, rank 1 at step 19", [0, 2],
    ),
    "a rank hangs, and NCCL's watchdog aborts those that wait for it": (
        {
            "aborts": True,
            "vanished": {0: 5.0, 2: 5.01, 1: 5.0 + LATER},
            "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGTERM, r2=-signal.SIGABRT),
            "steps": {0: 20, 1: 19, 2: 20},
        },
        1, "Hang", "rank 1 is absent from a collective the others wait in", [0, 2],
    ),
    "a rank is killed, and NCCL's watchdog aborts those that wait for it": (
        {
            "aborts": True,
            "vanished": {1: 4.0, 0: 5.0, 2: 5.01},
            "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGKILL, r2=-signal.SIGABRT),
        },
        1, "SIGKILL", "killed by SIGKILL", [0, 2],
    ),
    "NCCL's watchdog aborts all ranks": (
        {"aborts": True, "vanished": {0: 5.1, 1: 5.0, 2: 5.2},
         "exits": exits(r0=-signal.SIGABRT, r1=-signal.SIGABRT, r2=-signal.SIGABRT)},
        1, "SIGABRT", "killed by SIGABRT", [0, 2],
    ),
    "a rank aborts without NCCL: its own doing": (
        {"vanished": {1: 5.0}, "exits": exits(r1=-signal.SIGABRT), "failures": {0: (5.1, echo(0))}},
        1, "SIGABRT", "killed by SIGABRT", [0],
    ),
    "a rank aborts by itself, and Horovod shuts the others down": (
        {
            "aborts": True,
            "vanished": {1: 5.0},
            "exits": exits(r1=-signal.SIGABRT),
            "failures": {0: (5.1, echo(0)), 2: (5.2, echo(2))},
        },
        1, "SIGABRT", "killed by SIGABRT", [0, 2],
    ),
    "a rank leaves before it could tell of its steps": (
        {"vanished": {1: 5.0}, "exits": exits(r1=3), "steps": {0: 4}},
        1, "Exit", "left with exit code 3 before it reported a step", [],
    ),
    "the launcher is killed, and a rank of another host notices": (
        {
            "failures": {1: (5.1, echo(1))},
            "vanished": {0: 5.0},
            "launcher_killed": True,
            "launcher_code": -signal.SIGKILL,
        },
        None, "LauncherFailed", "the launcher was killed by SIGKILL while its ranks ran", [],
    ),
    "a rank cannot even connect, and the launcher is ended for it": (
        {"exits": exits(r1=1), "launcher_code": -signal.SIGTERM, "launcher_killed": True},
        1, "Exit", "left with exit code 1 before its first step", [],
    ),
    "a rank is ended by a signal that has no name": (
        {"vanished": {1: 5.0}, "exits": exits(r1=-40)},
        1, "signal 40", "killed by signal 40", [],
    ),
    "two ranks hang": (
        {"failures": {2: (5.0, echo(2))}},
        0, "Hang", "rank 0 and rank 1 are absent from a collective", [2],
    ),
    "all ranks lose a connection and none is to blame": (
        {"failures": {0: (5.1, echo(0)), 1: (5.0, echo(1)), 2: (5.2, echo(2))}},
        1, "DistNetworkError", "Connection closed", [0, 2],
    ),
    "the launcher does not start": (
        {"launcher_code": 1, "launcher_log": "Traceback …\n  …\nImportError: no torch\n"},
        None, "LauncherFailed", "before its ranks did; it last printed: ImportError: no torch", [],
    ),
    "the launcher dies in silence": (
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
            "stop_asked": True,
            "finished": finished(0, 1, 2, stopped=True),
        },
        1, "NonFiniteLoss", "the loss became nan at step 18", [],
    ),
    "a rank fails while all are stopping": (
        {"stop_asked": True, "failures": {1: (5.0, failure(1))}},
        1, "ValueError", "my mistake", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", FAILED)
def test_a_failed_run_has_one_headline(story: str) -> None:
    seen, rank, kind, part, collateral = FAILED[story]
    verdict = judge(Evidence(world_size=3, **seen))
    error = verdict.error
    assert verdict.status == "failed"
    assert error is not None
    assert (error.rank, error.type) == (rank, kind)
    assert part in error.message
    assert error.collateral == collateral
    named = rank is None or kind == "Hang"
    assert verdict.reason == (error.message if named else f"rank {rank}: {error.message}")


def test_the_headline_keeps_traceback_step_and_whose_fault_it_is() -> None:
    said = failure(1, traceback="Traceback …", step=12, usage=True)
    error = judge(Evidence(world_size=2, failures={1: (5.0, said)})).error
    assert error is not None
    assert (error.traceback, error.step, error.usage) == ("Traceback …", 12, True)


def test_a_hang_shows_where_another_rank_waited() -> None:
    said = failure(0, traceback="Traceback …", collateral=True)
    error = judge(Evidence(world_size=2, failures={0: (5.0, said)})).error
    assert error is not None
    assert error.traceback == "rank 0 waited here:\nTraceback …"


def test_a_launchers_last_words_are_kept_whole() -> None:
    error = judge(Evidence(world_size=2, launcher_code=1, launcher_log="a\nb\n")).error
    assert error is not None
    assert error.traceback == "a\nb\n"


ENDED = {
    "all steps done": ({"finished": finished(0, 1)}, "completed", "all steps done"),
    "stopped in order": (
        {"finished": finished(0, 1, stopped=True), "stop_asked": True},
        "stopped",
        "after step 40",
    ),
    "a stop that came too late": (
        {"finished": finished(0, 1), "stop_asked": True},
        "completed",
        "all steps done",
    ),
    "stopped at once": ({"stopped_now": True}, "stopped", "without a checkpoint"),
    "stopped at once while others had failed of it": (
        {"stopped_now": True, "failures": {0: (5.0, echo(0))}},
        "stopped",
        "without a checkpoint",
    ),
    "a stop that had to be forced": (
        {"stop_asked": True, "stop_overdue": True, "steps": {0: 7}},
        "stopped",
        "took too long and was forced; last seen: rank 0 at step 7, rank 1 at step 0",
    ),
    "done before the forced end": (
        {"stop_asked": True, "stopped_now": True, "finished": finished(0, 1)},
        "completed",
        "all steps done",
    ),
}


@pytest.mark.parametrize("story", ENDED)
def test_a_run_that_did_not_fail_says_how_it_ended(story: str) -> None:
    seen, status, part = ENDED[story]
    verdict = judge(Evidence(world_size=2, **seen))
    assert (verdict.status, verdict.error) == (status, None)
    assert part in verdict.reason


def test_a_fault_of_the_supervisor_is_said_to_be_ours() -> None:
    verdict = broken(OSError("disk full"))
    assert verdict.status == "failed"
    assert verdict.error is not None
    assert verdict.error.type == "OSError"
    assert "the supervisor failed (disk full)" in verdict.reason
