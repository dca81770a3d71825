"""Ranks that an external scheduler starts with the same command are one run.

Here the tests start the two processes.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrain.runners.system.scheduler_env import GIVEN
from tests.support.commands import DISTRAIN, ENDLESS, Commands, dotted, sets
from tests.support.runs import processes_of


class Ranks(Commands):
    """The commands of two ranks, each with its own log."""

    def __init__(self, user_folder: Path) -> None:
        super().__init__(user_folder / "runs", ranks=2)
        self.user_folder = user_folder
        self.port = free_port()
        self.settings: dict[str, Any] = {"launcher": "env", "train.threads": 1}

    def start(
        self, rank: int, method: str = "env://", *, log: str = "", **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start `distrain run` with the environment of a rank; empty variables are left out."""
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1" if method == "env://" else "",
            "MASTER_PORT": str(self.port) if method == "env://" else "",
            **variables,
        }
        given = {name: value for name, value in variables.items() if value}
        settings = {**self.settings, "dist.init_method": method}
        with (self.user_folder / (log or f"{rank}.log")).open("wb") as file:
            self.started.append(
                subprocess.Popen(
                    [*DISTRAIN, "run", "ddp", *sets(settings)],
                    env={k: v for k, v in os.environ.items() if k not in GIVEN} | given,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return self.started[-1]

    def change(self, **changes: Any) -> None:
        self.settings = self.settings | dotted(changes)

    def log_text(self, name: int | str) -> str:
        return (self.user_folder / f"{name}.log").read_text()

    @property
    def output(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self.user_folder.glob("*.log")))

    def exit_codes(self, *processes: subprocess.Popen[bytes]) -> list[int]:
        return [self.exit_code(process) for process in processes or self.started]

    def train(self) -> list[subprocess.Popen[bytes]]:
        """Start an endless run and wait for its first steps."""
        self.change(**ENDLESS)
        both = [self.start(rank) for rank in (0, 1)]
        self.assert_continues(both)
        return both


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def ranks(user_folder: Path) -> Iterator[Ranks]:
    with Ranks(user_folder) as ranks:
        yield ranks
    if ranks.runs.exists():
        for process in processes_of(ranks.record.dir):
            process.kill()


METHODS: dict[str, Callable[[Ranks], str]] = {
    "env": lambda ranks: "env://",
    "tcp": lambda ranks: f"tcp://127.0.0.1:{ranks.port}",
    "file": lambda ranks: f"file://{ranks.user_folder}/meeting",
}


@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_evaluate_as_one_process(method: str, ranks: Ranks) -> None:
    ranks.change(train__epochs=1, report__listen="127.0.0.1" if method == "file" else "")
    for rank in (1, 0):  # the order does not matter
        ranks.start(rank, METHODS[method](ranks))
    assert ranks.exit_codes() == [0, 0], ranks.output
    found = ranks.evaluation()
    assert found["samples"] == 360
    if method == "env":  # with the others only the ranks' meeting differs
        assert found == pytest.approx(ranks.evaluate_alone(train__epochs=1), rel=1e-3)
    record = ranks.record
    assert {rank.rank: rank.device for rank in record.ranks()} == {0: "cpu:0", 1: "cpu:1"}
    assert "training    rank 1 of 2 on cpu:1" in ranks.log_text(1)
    assert not processes_of(record.dir)
    assert not list(ranks.user_folder.glob("meeting*"))


def test_a_meeting_file_left_by_a_killed_run_is_replaced(ranks: Ranks) -> None:
    (ranks.user_folder / "meeting").write_bytes(b"of another run")
    (ranks.user_folder / "meeting.distrain").write_text("tcp:127.0.0.1:9\nold")
    ranks.change(train__epochs=1, report__listen="127.0.0.1")
    other = ranks.start(1, METHODS["file"](ranks))
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(3)
    ranks.start(0, METHODS["file"](ranks))
    assert ranks.exit_codes() == [0, 0], ranks.output


def test_a_file_that_is_not_from_a_run_is_left_unchanged(ranks: Ranks) -> None:
    (ranks.user_folder / "meeting").write_text("somebody's work")
    assert ranks.exit_codes(ranks.start(0, METHODS["file"](ranks))) == [1]
    assert "exists and was not left by a run of yours: choose another file" in ranks.log_text(0)
    assert (ranks.user_folder / "meeting").read_text() == "somebody's work"


def test_ranks_use_a_shared_token_from_their_environment(ranks: Ranks) -> None:
    ranks.change(train__epochs=1)
    ranks.start(0, DISTRAIN_TOKEN="a word")
    ranks.start(1, DISTRAIN_TOKEN="another word")
    assert ranks.exit_codes(ranks.started[1]) == [1]
    assert "the token is not that of this run" in ranks.log_text(1)
    again = ranks.start(1, log="again.log", DISTRAIN_TOKEN="a word")
    assert ranks.exit_codes(ranks.started[0], again) == [0, 0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named(rank: int, ranks: Ranks) -> None:
    ranks.change(task__name="faulty:make", task__args=f'{{what = "kill", rank = {rank}}}')
    for number in (0, 1):
        ranks.start(number)
    assert ranks.exit_codes() == [1, 1]
    log = ranks.record.dir / "logs" / f"rank-{rank}.log"
    assert f"rank {rank} is about to kill" in log.read_text()
    error = ranks.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (rank, "SIGKILL")
    for output in (ranks.log_text(0), ranks.log_text(1)):
        assert f"rank {rank} on {socket.gethostname()}: killed by SIGKILL" in output


def test_a_killed_task_is_named(ranks: Ranks) -> None:
    _, other = ranks.train()
    (task,) = psutil.Process(other.pid).children()
    task.kill()
    assert ranks.exit_codes() == [1, 128 + 9]
    assert ranks.record.state.reason.startswith(f"rank 1 on {socket.gethostname()}: ")


def test_ctrl_c_on_any_rank_stops_all_at_one_step(ranks: Ranks) -> None:
    _, other = ranks.train()
    other.send_signal(2)
    assert ranks.exit_codes() == [130, 130], ranks.output
    assert "stopped on request after step" in ranks.record.state.reason
    assert ranks.record.last_checkpoint is not None


def test_a_rank_that_never_joins_is_named(ranks: Ranks) -> None:
    ranks.change(dist__join_timeout_s=30)
    ranks.start(0, WORLD_SIZE="3")
    ranks.start(1, WORLD_SIZE="3")
    assert ranks.exit_codes() == [1, 1]
    assert "rank 2 did not join within dist.join_timeout_s; nothing was trained" in ranks.log_text(
        0
    )
    assert "rank 2 did not join" in ranks.log_text(1)


def test_waiting_for_rank_0_has_a_time_limit(ranks: Ranks) -> None:
    ranks.change(dist__join_timeout_s=3)
    ranks.start(1)
    assert ranks.exit_codes() == [1]
    assert f"rank 0 did not publish the run's address at 127.0.0.1:{ranks.port} within 3 s" in (
        ranks.log_text(1)
    )


def test_a_second_process_of_a_rank_is_refused(ranks: Ranks) -> None:
    ranks.train()
    again = ranks.start(1, log="again.log")
    assert ranks.exit_codes(again) == [1]
    assert "rank 1 of run" in ranks.log_text("again")
    assert "has already joined" in ranks.log_text("again")
    ranks.assert_continues(ranks.started[:2])


def test_ranks_with_different_world_sizes_do_not_train(ranks: Ranks) -> None:
    ranks.start(0)
    ranks.start(1, WORLD_SIZE="3")
    assert ranks.exit_codes() == [2, 1]
    assert "WORLD_SIZE is 3 here and 2 on rank 0" in ranks.log_text(0)


def test_a_port_in_use_is_named(ranks: Ranks) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ranks.port))
        taken.listen()
        assert ranks.exit_codes(ranks.start(0)) == [1]
    assert f"the ranks cannot meet at 127.0.0.1:{ranks.port}" in ranks.log_text(0)


@pytest.mark.parametrize(
    ("rank", "changes", "sentence"),
    [
        (0, {"WORLD_SIZE": ""}, "WORLD_SIZE is not set"),
        (
            1,
            {"MASTER_ADDR": "", "MASTER_PORT": ""},
            "MASTER_ADDR is not set; MASTER_PORT is not set",
        ),
        (0, {"MASTER_PORT": "http"}, "MASTER_PORT is 'http', not a port"),
        (1, {"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a whole number"),
        (1, {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE 2"),
        (0, {"RANK": "7"}, "RANK is 7 and WORLD_SIZE 2"),
        (0, {"RANK": ""}, "RANK is not set"),
    ],
)
def test_wrong_variables_are_reported_in_one_sentence(
    rank: int, changes: dict[str, str], sentence: str, ranks: Ranks
) -> None:
    assert ranks.exit_codes(ranks.start(rank, **changes)) == [2]
    output = ranks.log_text(rank)
    assert "env reads each rank's position from its environment: " in output
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("tcp://nobody", "is not tcp://HOST:PORT"),
        ("env://somewhere", "env:// takes nothing after it"),
        ("file://here", "file:///PATH"),
        ("file:///none/at/all", "there is no folder /none/at"),
    ],
)
def test_a_wrong_init_method_is_reported_in_one_sentence(
    method: str, sentence: str, ranks: Ranks
) -> None:
    assert ranks.exit_codes(ranks.start(0, method)) == [2]
    assert sentence in ranks.log_text(0)
