"""Stragglers are found from the sums of a record, without comparing clocks or step times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.analysis.stragglers import MIN_POINTS, find_straggler
from distrain.runners.protocol.events import OTHER, ScriptSettings
from tests.support.records import completed_run

STEP = {"data": 0.1, "forward": 0.2, "backward": 0.4, "optimizer": 0.05}
SECONDS = 1.0  # of a step, alike on all ranks


def step(**longer: float) -> dict[str, Any]:
    """Return a rank's step with some phases longer, and its wait as much shorter."""
    own = {name: seconds + longer.get(name, 0.0) for name, seconds in STEP.items()}
    wait = SECONDS - sum(own.values()) - longer.get(OTHER, 0.0)
    return {**own, "seconds": SECONDS, "comm": wait, "wait": wait}


def rank_and_phase(record: Any) -> tuple[int, str] | None:
    found = find_straggler(record)
    return None if found is None else (found.rank, found.phase)


@pytest.mark.parametrize("phase", [*STEP, OTHER])
@pytest.mark.parametrize("world", [2, 4])
def test_a_straggler_is_named_with_its_phase(phase: str, world: int, tmp_path: Path) -> None:
    run = completed_run(
        tmp_path, lambda rank, _: step(**({phase: 0.2} if rank == 1 else {})), world=world
    )
    found = find_straggler(run)
    assert found is not None
    assert (found.rank, found.phase) == (1, phase)
    assert found.seconds == pytest.approx(0.2)
    assert found.share == pytest.approx(0.2)
    assert found.others_wait - found.own_wait == pytest.approx(0.2)


def test_equal_ranks_have_no_straggler(tmp_path: Path) -> None:
    assert find_straggler(completed_run(tmp_path, lambda *_: step())) is None


def test_one_rank_alone_is_no_straggler(tmp_path: Path) -> None:
    assert find_straggler(completed_run(tmp_path, lambda *_: step(), world=1)) is None


def test_a_device_that_is_a_little_slower_in_each_phase_is_a_straggler(tmp_path: Path) -> None:
    slow = step(forward=0.06, backward=0.07)
    assert rank_and_phase(completed_run(tmp_path, lambda rank, _: slow if rank else step())) == (
        1,
        "backward",
    )


def test_a_slow_phase_that_makes_no_rank_wait_is_no_straggler(tmp_path: Path) -> None:
    # given a rank that is slower in forward and as much faster in backward
    swapped = step(forward=0.2, backward=-0.2)
    assert (
        rank_and_phase(completed_run(tmp_path, lambda rank, _: swapped if rank else step())) is None
    )


def test_a_rank_that_waits_less_but_has_no_slow_phase_is_no_straggler(tmp_path: Path) -> None:
    quick = step() | {"wait": 0.0}
    assert (
        rank_and_phase(completed_run(tmp_path, lambda rank, _: quick if rank else step())) is None
    )


def test_a_delay_after_the_first_all_reduce_shows_at_the_end_of_backward(tmp_path: Path) -> None:
    # given a rank whose first bucket is ready in time, and whose last is late
    run = completed_run(
        tmp_path, lambda rank, _: step(**({"backward": 0.2} if rank else {})) | {"wait": 0.3}
    )
    assert rank_and_phase(run) == (1, "backward")


def test_a_rank_that_is_slow_in_few_steps_is_no_straggler(tmp_path: Path) -> None:
    def hiccup(rank: int, number: int) -> dict[str, Any]:
        return step(data=0.2) if rank == 1 and number % 4 == 0 else step()

    assert rank_and_phase(completed_run(tmp_path, hiccup)) is None


def test_a_larger_share_of_the_batch_may_take_longer(tmp_path: Path) -> None:
    # given three samples on one rank, two on the other, and proportional times
    larger = step(forward=0.1, backward=0.2)
    run = completed_run(
        tmp_path, lambda rank, _: {**(step() if rank else larger), "samples": 3 - rank}
    )
    assert rank_and_phase(run) is None


def test_a_smaller_share_of_the_batch_need_not_be_faster(tmp_path: Path) -> None:
    assert (
        rank_and_phase(completed_run(tmp_path, lambda rank, _: {**step(), "samples": 3 - rank}))
        is None
    )


def test_too_few_windows_have_no_straggler(tmp_path: Path) -> None:
    run = completed_run(tmp_path, lambda rank, _: step(data=0.2 * rank), count=MIN_POINTS - 1)
    assert find_straggler(run) is None


def test_warm_up_steps_are_ignored(tmp_path: Path) -> None:
    def slow_at_first(rank: int, number: int) -> dict[str, Any]:
        early = number < 25
        return {**step(data=0.2 * rank if early else 0.0), "warmup": early}

    assert rank_and_phase(completed_run(tmp_path, slow_at_first)) is None


def test_a_straggler_is_found_in_a_long_run(tmp_path: Path) -> None:
    run = completed_run(tmp_path, lambda rank, _: step(forward=0.2 * rank), count=3000)
    assert rank_and_phase(run) == (1, "forward")


def test_what_ddp_times_of_a_script_does_not_order_its_ranks(tmp_path: Path) -> None:
    """It times one step in a hundred; a script may time the wait in every step itself."""

    def run(name: str, comm: str) -> Any:
        return completed_run(
            tmp_path / name,
            lambda rank, _: step(**({"data": 0.2} if rank == 1 else {})),
            script={"path": "train.py"},
            samples=[ScriptSettings(time=0.0, rank=0, sources={"comm": comm})],
        )

    assert find_straggler(run("ddp", "DDP's own timing of one step in a hundred")) is None
    assert rank_and_phase(run("named", "distrain.phase()")) == (1, "data")
