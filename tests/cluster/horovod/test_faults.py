"""A failing run over Horovod names the rank that failed first, within the config's timeout, and
leaves no process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from distrain import Run
from distrain.runners.records.state import RunError
from tests.support.runs import assert_nothing_left, processes_of, steps_of, wait_until

Start = Callable[..., Run]
LONG = {"train__epochs": 1000, "task__args": {"pace": 0.01}}


def error_of(run: Run) -> RunError:
    """Wait until the run has failed; check that no process is left and return its error."""
    assert run.wait(120)["status"] == "failed"
    error = run.record.state.error
    assert error is not None
    assert_nothing_left(run)
    return error


def pid_of(run: Run, rank: int) -> int:
    return next(each.pid for each in run.record.ranks() if each.rank == rank)


@pytest.mark.parametrize(
    ("rank", "what", "kind", "sentence"),
    [
        (1, "raise", "ValueError", "the user's own mistake"),
        (0, "vanish", "Exit", "exited with code 5"),
        (0, "kill", "SIGKILL", "killed by SIGKILL after step"),
        (1, "kill", "SIGKILL", "killed by SIGKILL after step"),
    ],
)
def test_a_rank_that_fails_in_training_is_named(
    rank: int, what: str, kind: str, sentence: str, started: Start
) -> None:
    run = started(task__args={"what": what, "rank": rank, "step": 20})
    error = error_of(run)
    assert (error.rank, error.type) == (rank, kind)
    assert sentence in error.message
    assert error.secondary == [1 - rank]


def test_a_suspended_rank_is_named(started: Start) -> None:
    run = started(**LONG, dist__timeout_s=10)
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    os.kill(pid_of(run, 1), signal.SIGSTOP)
    error = error_of(run)
    assert (error.rank, error.type) == (1, "Hang")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_sleeping_rank_is_named(rank: int, started: Start) -> None:
    run = started(task__args={"what": "hang", "rank": rank, "step": 20}, dist__timeout_s=10)
    error = error_of(run)
    assert (error.rank, error.type) == (rank, "Hang")
    assert "absent from a collective" in error.message


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_without_a_model_is_named(rank: int, started: Start, user_folder: Path) -> None:
    (user_folder / "sleeper.py").write_text(SLEEPS)
    run = started(model__name="sleeper:make", model__args={"late": rank}, dist__timeout_s=10)
    error = error_of(run)
    assert (error.rank, error.type) == (rank, "Hang")


SLEEPS = """
import os, time
from torch import nn

def make(late, **_):
    if os.environ["RANK"] == str(late):
        time.sleep(1000)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.mark.parametrize(("rank", "via"), [(0, "distrain"), (1, "horovodrun")])
def test_a_rank_that_never_joins_the_others_is_named(rank: int, via: str, started: Start) -> None:
    """The ranks that wait for it abort."""
    run = started(horovod__via=via, dist__timeout_s=10)
    pid = wait_until(lambda: next((r.pid for r in run.record.ranks() if r.rank == rank), None))
    os.kill(pid, signal.SIGSTOP)
    error = error_of(run)
    assert (error.rank, error.type) == (rank, "Hang")
    assert error.secondary == [1 - rank]


@pytest.mark.parametrize("via", ["distrain", "horovodrun"])
def test_a_rank_that_ends_before_it_joins_the_others_is_named(via: str, started: Start) -> None:
    run = started(horovod__via=via, dist__timeout_s=20)
    pid = wait_until(lambda: next((r.pid for r in run.record.ranks() if r.rank == 1), None))
    os.kill(pid, signal.SIGKILL)
    error = error_of(run)
    assert (error.rank, error.type) == (1, "SIGKILL")
    assert "before its first step" in error.message


def test_a_stop_ends_all_ranks_at_one_step_with_a_checkpoint(started: Start) -> None:
    run = started(**LONG)
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    run.stop()
    summary = run.wait(120)
    assert summary["status"] == "stopped"
    last = run.record.dir / "checkpoints" / "last.pt"
    assert last.resolve().name == f"step-{summary['steps']:08d}.pt"
    assert_nothing_left(run)


def test_killing_the_supervisor_ends_every_process(started: Start) -> None:
    run = started(**LONG, data__workers=2)
    wait_until(lambda: steps_of(run).get(0, 0) > 5)
    assert len(processes_of(run.record.dir)) >= 6
    supervisor = run.record.state.supervisor_pid
    assert supervisor is not None
    psutil.Process(supervisor).kill()
    assert_nothing_left(run)
