"""torchrun restarts ranks that died, and the record counts repeated steps once."""

from __future__ import annotations

from collections.abc import Callable

from distrain import Run
from distrain.runners.records.timeseries.series import STEPS
from tests.support.runs import assert_nothing_left

Start = Callable[..., Run]


def test_repeated_steps_count_once(start: Start) -> None:
    # when a process of rank 1 dies in its 20th step of 36, with a checkpoint every 6 steps
    run = start(
        launcher="torchrun",
        task__args={"what": "raise", "rank": 1, "step": 20},
        dist__max_restarts=2,
        checkpoint__every_steps=6,
        eval__every_steps=6,
    )
    summary, record = run.wait(240), run.record
    # then the restarted ranks continue after step 18, and the run completes
    attempts = record.attempts()
    assert (summary["status"], summary["steps"]) == ("completed", 36)
    assert summary["attempts"] == len(attempts) >= 1
    assert attempts[0].step == 18
    assert summary["steps_again"] == sum(each.lost - each.step for each in attempts)
    # and every step and sample of the three epochs is recorded once
    facts = record.state.facts
    assert facts is not None
    assert summary["samples"] == 3 * facts.train_samples
    for rank in record.keys(STEPS):
        curve = record.curve(STEPS, rank)
        assert list(curve["step"]) == sorted(set(curve["step"]))
        assert sum(curve["steps"]) == curve["step"][-1] == 36
    assert [each.step for each in record.evaluations()] == [6, 12, 18, 24, 30, 36]
    assert (record.dir / "checkpoints" / "best.pt").exists()
    assert_nothing_left(run)
