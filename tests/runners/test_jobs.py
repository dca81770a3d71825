"""What Slurm says of a job, in words."""

from __future__ import annotations

from typing import Any

import pytest

from runners import jobs
from runners.events import Job
from runners.state import RunState


def a_job(**fields: Any) -> Job:
    return Job(**({"time": 1000.0, "id": "4711", "state": "RUNNING"} | fields))


def test_a_pending_job_tells_why_how_many_are_before_it_and_when_it_may_start() -> None:
    job = a_job(state="PENDING", reason="Resources", place=3, starts=1000.0 + 7380)
    told = "job 4711 PENDING (Resources), 3 before it, expected to start in 2 h 03 min"
    assert jobs.told(job, 1000.0) == told


def test_a_running_job_tells_what_is_left_of_its_time() -> None:
    job = a_job(reason="None", nodes=["a", "b"], ends=1060.0, restarts=2)
    assert jobs.told(job, 1018.0) == (
        "job 4711 RUNNING, 42.0 s left, on 2 nodes, queued again 2 times"
    )
    assert jobs.left(job, 1061.0) == "its time is up"


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "NODE_FAIL"])
def test_an_ended_job_has_slurms_own_word_and_no_time_left(state: str) -> None:
    assert jobs.told(a_job(state=state, ends=2000.0), 1000.0) == f"job 4711 {state}"


def test_a_job_that_slurm_did_not_take_has_no_number() -> None:
    assert jobs.told(a_job(id="", state="REFUSED"), 1000.0) == "the job was refused"


def test_whose_job_a_run_is_and_where_its_nodes_told_up_to_a_point() -> None:
    nodes = [f"n{number}" for number in range(20)]
    run = RunState(run_id="a", created=0.0, status="running", job=a_job(nodes=nodes))
    assert jobs.standing(run) == "job 4711 on n0, n1, n2, n3, n4, n5, n6, n7 …"
    assert jobs.standing(RunState(run_id="a", created=0.0, status="running")) == ""


@pytest.mark.parametrize(
    ("status", "state", "waits"),
    [
        ("starting", "PENDING", True),
        ("running", "REQUEUED", True),
        ("running", "RUNNING", False),
        ("running", "COMPLETING", False),
        ("failed", "TIMEOUT", False),
    ],
)
def test_a_run_waits_for_a_job_that_does_not_run_yet_or_no_more(
    status: Any, state: str, waits: bool
) -> None:
    run = RunState(run_id="a", created=0.0, status=status, job=a_job(state=state))
    assert jobs.waits(run) == waits


def test_what_was_done_again_is_told_once_there_is_any() -> None:
    assert jobs.anew(0, 0) == ""
    assert jobs.anew(1, 23) == "started anew 1 time, 23 steps done again"
    assert jobs.anew(2, 0) == "started anew 2 times"
