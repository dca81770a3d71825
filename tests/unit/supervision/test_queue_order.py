"""Moving runs in the device queue, while others move them and supervisors decide."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from distrain.runners.errors import DistrainError
from distrain.runners.supervision.device_queue import (
    DeviceLease,
    QueueEntry,
    queue_folder,
    write_entry,
)
from distrain.runners.supervision.queue_order import Step, move, read_queue

# Two processes that move the same runs as fast as they can.
SHUFFLE = """
import random, sys
from distrain.runners.supervision.queue_order import move
random.seed(int(sys.argv[1]))
for _ in range(200):
    move(random.choice("abcd"), random.choice(["up", "down", "first", "last"]))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "queue"))
    return tmp_path / "queue"


def waiting(run_id: str, movable: bool = True) -> QueueEntry:
    return QueueEntry(run_id=run_id, dir="", gpus={"x": 0}, waiting=True, movable=movable)


@pytest.fixture
def leases() -> Iterator[dict[str, DeviceLease]]:
    """Return the leases of four runs that wait for one GPU, by id."""
    with ExitStack() as stack:
        yield {run_id: stack.enter_context(DeviceLease(waiting(run_id))) for run_id in "abcd"}


def order() -> str:
    return "".join(run.entry.run_id for run in read_queue() if run.place)


@pytest.mark.parametrize(
    ("run", "step", "place", "after"),
    [
        ("c", "up", 2, "acbd"),
        ("b", "down", 3, "acbd"),
        ("d", "first", 1, "dabc"),
        ("a", "last", 4, "bcda"),
        ("a", "up", 1, "abcd"),
        ("d", "down", 4, "abcd"),
    ],
)
def test_a_move_changes_the_order_for_everybody(
    leases: dict[str, DeviceLease], run: str, step: Step, place: int, after: str
) -> None:
    assert move(run, step) == place
    assert order() == after
    # the first may start, and only it
    started = [name for name in after if not leases[name].acquire()]
    assert started == [after[0]]
    with pytest.raises(DistrainError, match="has started and cannot be moved"):
        move(after[0], "last")


def test_moves_at_the_same_time_lose_no_run(leases: dict[str, DeviceLease]) -> None:
    movers = [subprocess.Popen([sys.executable, "-c", SHUFFLE, str(n)]) for n in range(2)]
    while any(mover.poll() is None for mover in movers):
        assert sorted(order()) == [*"abcd"]
    assert [mover.returncode for mover in movers] == [0, 0]
    first = order()[0]
    assert [name for name in "abcd" if not leases[name].acquire()] == [first]


def test_two_entries_with_one_position_still_have_an_order() -> None:
    """A process may be killed between the two writes of a move."""
    with DeviceLease(waiting("a")) as one, DeviceLease(waiting("b")) as two:
        with (queue_folder() / "b.json").open("r+b") as file:
            write_entry(file.fileno(), msgspec.structs.replace(two.entry, position=1))
        assert two.acquire() == ["GPU 0: run a is ahead in the queue"]
        assert one.acquire() == []


def test_a_run_of_an_earlier_version_keeps_its_place() -> None:
    with DeviceLease(waiting("a", movable=False)), DeviceLease(waiting("b")):
        with pytest.raises(DistrainError, match="run a was queued by an earlier version"):
            move("b", "up")
        assert order() == "ab"
