"""Given a program that starts its ranks more than once, then all their processes are recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrain.runners.records.timeseries.series import LOGGED
from tests.integration.cli.conftest import Distrain

from .conftest import Write, log_of, only_run, summary

# Five steps on both ranks, and then three more; what ends rank 1 in its fourth step comes before.
STARTS_TWICE = """
    import multiprocessing, os, sys, time
    import distrain

    def train(rank, steps, end):
        distrain.init(rank=rank, world_size=2)
        for step in range(1, steps + 1):
            distrain.step(samples=4)
            distrain.log({"loss": steps})
            if step == 4 and rank == 1:
                exec(end)

    def start(steps, end):
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=train, args=(rank, steps, end)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()

    if __name__ == "__main__":
        start(5, sys.argv[1])
        start(3, "")
"""
RESTARTED_BY_TORCHRUN = """
    import os, pathlib, time
    import distrain

    distrain.init()
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    for step in range(1, 6 if is_first else 4):
        distrain.step(samples=4)
        distrain.log({"reward": float(is_first)}, step=step if is_first else step + 3)
    if is_first:
        if os.environ["RANK"] == "1":
            while not pathlib.Path("logged").exists():
                time.sleep(0.1)
            raise ValueError("flaky")
        time.sleep(1)  # longer than a window
        pathlib.Path("logged").touch()
        time.sleep(600)
"""
DOES_NOT_WAIT = """
    import os, pathlib, time
    import distrain

    for rank in range(2):
        if os.fork() == 0:
            distrain.init(rank=rank, world_size=2)
            distrain.step(samples=4)
            pathlib.Path(f"trains-{rank}").touch()
            time.sleep(600)
    while not all(os.path.exists(f"trains-{rank}") for rank in range(2)):
        time.sleep(0.1)
    time.sleep(1)
"""
EXECUTES = """
    import os, sys
    import distrain

    if "AGAIN" not in os.environ:
        os.environ["AGAIN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    distrain.init()
    for step in range(5):
        distrain.step(samples=4)
    sys.exit(3)
"""
TWINS = """
    import multiprocessing
    import distrain

    def train(barrier):
        distrain.init(rank=0, world_size=1)
        distrain.step(samples=4)
        barrier.wait()

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(3)
        ranks = [context.Process(target=train, args=(barrier,)) for _ in range(3)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
"""


def notices(runs_dir: Path) -> list[str]:
    events = only_run(runs_dir).events(kinds=["notice"])
    texts = [event.text for _, event in events]  # type: ignore[attr-defined]
    return [text for text in texts if "independent processes" not in text]


def test_ranks_that_have_finished_continue_after_their_last_step(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", STARTS_TWICE)
    found = summary(distrain, "train.py", "")
    record = only_run(runs_dir)
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 8, 64)
    assert found["attempts"] == 0
    text = "ranks 0–1 were started again by the program: their steps continue after step 5"
    assert notices(runs_dir) == [text]
    for key in record.logged()["loss"].values():
        assert record.totals(LOGGED)[key]["finite"] == 8
        assert record.curve(LOGGED, key)["step"][-1] == 8
    assert [(rank.step, rank.finished) for rank in record.ranks()] == [(8, True), (8, True)]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise ValueError('flaky')", "rank 1: ValueError: flaky"),
        ("os.kill(os.getpid(), 9)", "rank 1: disconnected after step 4 without reporting an error"),
    ],
)
def test_ranks_of_which_one_has_failed_begin_a_new_attempt(
    end: str, reason: str, write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", STARTS_TWICE.replace('"loss": steps})', '"loss": steps}); time.sleep(0.2)'))
    found = summary(distrain, "train.py", end)
    (attempt,) = only_run(runs_dir).attempts()
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 3, 24)
    assert (found["attempts"], attempt.reason) == (1, reason)


def test_ranks_that_the_torchrun_of_a_command_restarts_begin_a_new_attempt(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", RESTARTED_BY_TORCHRUN)
    torchrun = (sys.executable, "-m", "torch.distributed.run")
    options = ("--nproc-per-node=2", "--max-restarts=1", "--standalone")
    found = summary(distrain, "--", *torchrun, *options, "train.py")
    record = only_run(runs_dir)
    (attempt,) = record.attempts()
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 3, 24)
    assert attempt.reason == "rank 1: ValueError: flaky"
    for key in record.logged()["reward"].values():  # in its own steps, it continues after step 3
        values = [(row.step, row.total) for row in record.samples(LOGGED, key)]
        assert values[-1][0] == 6
        assert {step for step, value in values if value == 1.0} <= {1, 2, 3}
        assert values[0][1] == 1.0


def test_a_second_process_of_a_connected_rank_is_named_once_and_not_recorded(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWINS)
    found = summary(distrain, "train.py")
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 1, 4)
    text = "another process is rank 0 already: give each process a rank of its own"
    assert notices(runs_dir) == [f"a process is not recorded: {text}"]
    log = log_of(only_run(runs_dir))
    assert log.count(f"distrain: nothing more is recorded: {text}\n") == 2


def test_ranks_that_their_program_did_not_wait_for_are_named(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", DOES_NOT_WAIT)
    assert summary(distrain, "train.py")["status"] == "completed"
    record = only_run(runs_dir)
    assert "did not wait for ranks 0–1, which were ended with it" in record.state.reason
    assert not [text for text in notices(runs_dir) if "exit handlers" in text]


def test_a_program_that_executes_itself_again_is_still_the_rank(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", EXECUTES)
    assert distrain("run", "train.py").returncode == 1
    record = only_run(runs_dir)
    error = record.state.error
    assert error is not None, log_of(record)
    assert (error.rank, error.message, error.step) == (0, "exited with code 3", 5)
