"""Ranks that another's scheduler starts, each by the same command, are one run: here two processes
that are started by hand.
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

from runners.rendezvous import GIVEN
from tests.commands import DISTRAIN, ENDLESS, Commands, dotted, sets
from tests.e2e.conftest import processes_of


class Ranks(Commands):
    """Two ranks, each with a log of its own."""

    def __init__(self, place: Path) -> None:
        super().__init__(place / "runs", ranks=2)
        self.place, self.port = place, free_port()
        self.settings: dict[str, Any] = {"launcher": "env", "train.threads": 1}

    def start(
        self, rank: int, method: str = "env://", *, log: str = "", **variables: str
    ) -> subprocess.Popen[bytes]:
        """`distrain run` with the environment of a rank; empty variables are left out."""
        ours = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1" if method == "env://" else "",
            "MASTER_PORT": str(self.port) if method == "env://" else "",
        }
        ours = {name: value for name, value in (ours | variables).items() if value}
        settings = {**self.settings, "dist.init_method": method}
        with (self.place / (log or f"{rank}.log")).open("wb") as file:
            self.started.append(
                subprocess.Popen(
                    [*DISTRAIN, "run", "ddp", *sets(settings)],
                    env={k: v for k, v in os.environ.items() if k not in GIVEN} | ours,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return self.started[-1]

    def change(self, **changes: Any) -> None:
        self.settings = self.settings | dotted(changes)

    def said(self, name: int | str) -> str:
        return (self.place / f"{name}.log").read_text()

    @property
    def told(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self.place.glob("*.log")))

    def end(self, *processes: subprocess.Popen[bytes]) -> list[int]:
        return [self.ended(process) for process in processes or self.started]

    def train(self) -> list[subprocess.Popen[bytes]]:
        """A run that would go on for ever, after its first steps."""
        self.change(**ENDLESS)
        both = [self.start(rank) for rank in (0, 1)]
        self.goes_on(both)
        return both


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


@pytest.fixture
def ranks(place: Path) -> Iterator[Ranks]:
    with Ranks(place) as ranks:
        yield ranks
    if ranks.runs.exists():
        for process in processes_of(ranks.record.dir):
            process.kill()


METHODS: dict[str, Callable[[Ranks], str]] = {
    "env": lambda ranks: "env://",
    "tcp": lambda ranks: f"tcp://127.0.0.1:{ranks.port}",
    "file": lambda ranks: f"file://{ranks.place}/meeting",
}


@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_evaluate_as_one_process(method: str, ranks: Ranks) -> None:
    ranks.change(train__epochs=1, report__listen="127.0.0.1" if method == "file" else "")
    for rank in (1, 0):  # in whatever order
        ranks.start(rank, METHODS[method](ranks))
    assert ranks.end() == [0, 0], ranks.told
    expected, found = ranks.alone(train__epochs=1), ranks.evaluation()
    assert found["samples"] == expected["samples"] == 360
    assert found == pytest.approx(expected, rel=1e-3)
    record = ranks.record
    assert {rank.rank: rank.device for rank in record.ranks()} == {0: "cpu:0", 1: "cpu:1"}
    assert "training    rank 1 of 2 on cpu:1" in ranks.said(1)
    assert not processes_of(record.dir)
    assert not list(ranks.place.glob("meeting*"))


def test_what_a_killed_run_has_left_in_the_file_is_in_nobodys_way(ranks: Ranks) -> None:
    (ranks.place / "meeting").write_bytes(b"of another run")
    (ranks.place / "meeting.distrain").write_text("tcp:127.0.0.1:9\nold")
    ranks.change(train__epochs=1, report__listen="127.0.0.1")
    other = ranks.start(1, METHODS["file"](ranks))
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(3)
    ranks.start(0, METHODS["file"](ranks))
    assert ranks.end() == [0, 0], ranks.told


def test_a_file_that_no_run_has_left_stays_as_it_is(ranks: Ranks) -> None:
    (ranks.place / "meeting").write_text("somebody's work")
    assert ranks.end(ranks.start(0, METHODS["file"](ranks))) == [1]
    assert "and no run has left it: name another" in ranks.said(0)
    assert (ranks.place / "meeting").read_text() == "somebody's work"


def test_a_token_that_all_know_is_told_to_nobody(ranks: Ranks) -> None:
    ranks.change(train__epochs=1)
    ranks.start(0, DISTRAIN_TOKEN="a word")
    ranks.start(1, DISTRAIN_TOKEN="another word")
    assert ranks.end(ranks.started[1]) == [1]
    assert "the token is not that of its run" in ranks.said(1)
    again = ranks.start(1, log="again.log", DISTRAIN_TOKEN="a word")
    assert ranks.end(ranks.started[0], again) == [0, 0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_named(rank: int, ranks: Ranks) -> None:
    ranks.change(task__name="faulty:make", task__args=f'{{what = "kill", rank = {rank}}}')
    for number in (0, 1):
        ranks.start(number)
    assert ranks.end() == [1, 1]
    log = ranks.record.dir / "logs" / f"rank-{rank}.log"
    assert f"rank {rank} is about to kill" in log.read_text()
    error = ranks.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (rank, "SIGKILL")
    for said in (ranks.said(0), ranks.said(1)):
        assert f"rank {rank} on {socket.gethostname()}: killed by SIGKILL" in said


def test_a_whole_task_that_is_killed_is_named(ranks: Ranks) -> None:
    _, other = ranks.train()
    (task,) = psutil.Process(other.pid).children()
    task.kill()
    assert ranks.end() == [1, 128 + 9]
    assert ranks.record.state.reason.startswith(f"rank 1 on {socket.gethostname()}: ")


def test_ctrl_c_on_another_rank_stops_all_at_one_step(ranks: Ranks) -> None:
    _, other = ranks.train()
    other.send_signal(2)
    assert ranks.end() == [130, 130], ranks.told
    assert "stopped on request after step" in ranks.record.state.reason
    assert ranks.record.last_checkpoint is not None


def test_a_rank_that_never_comes_is_named(ranks: Ranks) -> None:
    ranks.change(dist__join_timeout_s=8)
    ranks.start(0, WORLD_SIZE="3")
    ranks.start(1, WORLD_SIZE="3")
    assert ranks.end() == [1, 1]
    assert "rank 2 did not join within dist.join_timeout_s; nothing was trained" in ranks.said(0)
    assert "rank 2 did not join" in ranks.said(1)


def test_rank_0_that_never_comes_is_waited_for_so_long(ranks: Ranks) -> None:
    ranks.change(dist__join_timeout_s=3)
    ranks.start(1)
    assert ranks.end() == [1]
    assert f"rank 0 did not tell at 127.0.0.1:{ranks.port} within 3 s" in ranks.said(1)


def test_a_rank_that_is_there_twice_is_refused(ranks: Ranks) -> None:
    ranks.train()
    again = ranks.start(1, log="again.log")
    assert ranks.end(again) == [1]
    assert "rank 1 of run" in ranks.said("again")
    assert "is there already" in ranks.said("again")
    ranks.goes_on(ranks.started[:2])


def test_ranks_that_disagree_on_their_number_do_not_train(ranks: Ranks) -> None:
    ranks.start(0)
    ranks.start(1, WORLD_SIZE="3")
    assert ranks.end() == [2, 1]
    assert "WORLD_SIZE is 3 here and 2 where rank 0 is" in ranks.said(0)


def test_a_port_that_is_taken_is_named(ranks: Ranks) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ranks.port))
        taken.listen()
        assert ranks.end(ranks.start(0)) == [1]
    assert f"the ranks cannot meet at 127.0.0.1:{ranks.port}" in ranks.said(0)


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"WORLD_SIZE": ""}, ["WORLD_SIZE is not set"]),
        (
            {"MASTER_ADDR": "", "MASTER_PORT": ""},
            ["MASTER_ADDR is not set; MASTER_PORT is not set"],
        ),
        ({"MASTER_PORT": "http"}, ["MASTER_PORT is 'http', no port"]),
        ({"WORLD_SIZE": "two"}, ["WORLD_SIZE is 'two', no whole number"]),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, ["LOCAL_RANK is 2 and LOCAL_WORLD_SIZE 2"]),
        ({"RANK": "7"}, ["RANK is 7 and WORLD_SIZE 2"]),
        ({"RANK": ""}, ["RANK is not set"]),
    ],
)
def test_wrong_variables_get_one_sentence(
    rank: str, changes: dict[str, str], words: list[str], ranks: Ranks
) -> None:
    assert ranks.end(ranks.start(int(rank), **changes)) == [2]
    said = ranks.said(int(rank))
    assert "env takes each rank's place from its environment: " in said
    assert all(each in said for each in words)
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("tcp://nobody", "is not tcp://HOST:PORT"),
        ("env://somewhere", "env:// stands alone"),
        ("file://here", "file:///PATH"),
        ("file:///none/at/all", "there is no folder /none/at"),
    ],
)
def test_a_wrong_place_to_meet_gets_one_sentence(method: str, sentence: str, ranks: Ranks) -> None:
    assert ranks.end(ranks.start(0, method)) == [2]
    assert sentence in ranks.said(0)
