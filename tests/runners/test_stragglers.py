"""Who is late, told from the sums of a record: no clock of another host, no step's length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fabricated import a_run

from runners.events import OTHER
from runners.stragglers import LEAST, straggler

STEP = {"data": 0.1, "forward": 0.2, "backward": 0.4, "optimizer": 0.05}
SECONDS = 1.0  # of a step, alike on all ranks


def step(**longer: float) -> dict[str, Any]:
    """A rank's step: what it does itself is so much longer, and its waiting so much shorter."""
    own = {name: seconds + longer.get(name, 0.0) for name, seconds in STEP.items()}
    waited = SECONDS - sum(own.values()) - longer.get(OTHER, 0.0)
    return {**own, "seconds": SECONDS, "comm": waited, "wait": waited}


def late(record: Any) -> tuple[int, str] | None:
    found = straggler(record)
    return None if found is None else (found.rank, found.phase)


@pytest.mark.parametrize("phase", [*STEP, OTHER])
@pytest.mark.parametrize("world", [2, 4])
def test_the_rank_that_is_late_is_named_with_its_phase(
    phase: str, world: int, tmp_path: Path
) -> None:
    run = a_run(tmp_path, lambda rank, _: step(**({phase: 0.2} if rank == 1 else {})), world=world)
    found = straggler(run)
    assert found is not None
    assert (found.rank, found.phase) == (1, phase)
    assert found.seconds == pytest.approx(0.2)
    assert found.share == pytest.approx(0.2)
    assert found.theirs - found.own == pytest.approx(0.2)


def test_nobody_is_named_where_all_are_alike(tmp_path: Path) -> None:
    assert straggler(a_run(tmp_path, lambda *_: step())) is None


def test_nobody_is_named_where_there_is_one_rank(tmp_path: Path) -> None:
    assert straggler(a_run(tmp_path, lambda *_: step(), world=1)) is None


def test_a_slow_device_is_late_in_each_phase_a_little(tmp_path: Path) -> None:
    slow = step(forward=0.06, backward=0.07)
    assert late(a_run(tmp_path, lambda rank, _: slow if rank else step())) == (1, "backward")


def test_a_phase_that_makes_nobody_wait_holds_nobody_back(tmp_path: Path) -> None:
    # given a rank that is slower in forward and as much faster in backward
    swapped = step(forward=0.2, backward=-0.2)
    assert late(a_run(tmp_path, lambda rank, _: swapped if rank else step())) is None


def test_a_rank_that_waits_little_is_not_late_if_it_does_nothing_longer(tmp_path: Path) -> None:
    quick = step() | {"wait": 0.0}
    assert late(a_run(tmp_path, lambda rank, _: quick if rank else step())) is None


def test_lateness_after_the_first_all_reduce_shows_at_the_end_of_backward(tmp_path: Path) -> None:
    # given a rank that is in time for its first bucket, and late with the last
    run = a_run(
        tmp_path, lambda rank, _: step(**({"backward": 0.2} if rank else {})) | {"wait": 0.3}
    )
    assert late(run) == (1, "backward")


def test_a_hiccup_is_no_straggler(tmp_path: Path) -> None:
    def hiccup(rank: int, number: int) -> dict[str, Any]:
        return step(data=0.2) if rank == 1 and number % 4 == 0 else step()

    assert late(a_run(tmp_path, hiccup)) is None


def test_a_larger_share_may_take_longer(tmp_path: Path) -> None:
    # given three samples on one rank, two on the other, and time that goes with them
    larger = step(forward=0.1, backward=0.2)
    run = a_run(tmp_path, lambda rank, _: {**(step() if rank else larger), "samples": 3 - rank})
    assert late(run) is None


def test_a_smaller_share_need_not_be_quicker(tmp_path: Path) -> None:
    assert late(a_run(tmp_path, lambda rank, _: {**step(), "samples": 3 - rank})) is None


def test_too_few_windows_name_nobody(tmp_path: Path) -> None:
    run = a_run(tmp_path, lambda rank, _: step(data=0.2 * rank), count=LEAST - 1)
    assert straggler(run) is None


def test_warm_up_is_not_looked_at(tmp_path: Path) -> None:
    def slow_at_first(rank: int, number: int) -> dict[str, Any]:
        early = number < 25
        return {**step(data=0.2 * rank * early), "warmup": early}

    assert late(a_run(tmp_path, slow_at_first)) is None


def test_as_many_points_are_read_of_a_long_run(tmp_path: Path) -> None:
    run = a_run(tmp_path, lambda rank, _: step(forward=0.2 * rank), count=3000)
    assert late(run) == (1, "forward")
