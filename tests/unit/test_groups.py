"""Groups of runs, apart from what runs do."""

from __future__ import annotations

from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.runners.errors import DistrainError
from distrain.runners.groups import Group

TIMEOUT_S = 60


def test_runs_of_a_group_are_stopped_at_the_same_time_and_each_problem_is_reported() -> None:
    """A run whose supervisor is suspended does not answer for seconds; the others need not wait."""
    meeting = Barrier(2)
    order = []

    def run(name: str, status: str, problem: str = "") -> Any:
        def stop(now: bool) -> None:
            if status != "queued":
                meeting.wait(TIMEOUT_S)
            order.append(name)
            if problem:
                raise DistrainError(problem)

        return SimpleNamespace(id=name, is_live=True, status=status, stop=stop)

    silent = run("silent", "running", "does not answer")
    group = Group("sweep", [silent, run("other", "running"), run("waiting", "queued")])
    with pytest.raises(DistrainError, match=r"^does not answer$"):
        group.stop()
    assert order[0] == "waiting"
    assert {*order} == {"silent", "other", "waiting"}
