"""The sentences about the state of a Slurm job."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.protocol.events import Job
from distrain.runners.records import job_status
from distrain.runners.records.state import RunState


def a_job(**fields: Any) -> Job:
    return Job(**({"time": 1000.0, "id": "4711", "state": "RUNNING"} | fields))


def test_a_pending_job_shows_its_reason_position_and_expected_start() -> None:
    job = a_job(state="PENDING", reason="Resources", jobs_ahead=3, starts=1000.0 + 7380)
    told = "job 4711 PENDING (Resources), 3 jobs ahead, expected to start in 2 h 03 min"
    assert job_status.describe(job, 1000.0) == told


def test_a_running_job_shows_its_remaining_time() -> None:
    job = a_job(reason="None", nodes=["a", "b"], ends=1060.0, restarts=2)
    assert job_status.describe(job, 1018.0) == (
        "job 4711 RUNNING, 42.0 s left, on 2 nodes, requeued 2 times"
    )
    assert job_status.time_left(job, 1061.0) == "time limit reached"


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "NODE_FAIL"])
def test_an_ended_job_shows_the_state_of_slurm_and_no_remaining_time(state: str) -> None:
    assert job_status.describe(a_job(state=state, ends=2000.0), 1000.0) == f"job 4711 {state}"


def test_a_job_that_slurm_refused_has_no_number() -> None:
    assert job_status.describe(a_job(id="", state="REFUSED"), 1000.0) == "the job was refused"


def test_the_job_and_its_first_nodes_are_named() -> None:
    nodes = [f"n{number}" for number in range(20)]
    run = RunState(run_id="a", created=0.0, status="running", job=a_job(nodes=nodes))
    assert job_status.job_and_nodes(run) == "job 4711 on n0, n1, n2, n3, n4, n5, n6, n7 …"
    assert job_status.job_and_nodes(RunState(run_id="a", created=0.0, status="running")) == ""


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
def test_a_run_waits_for_a_job_that_is_not_running(status: Any, state: str, waits: bool) -> None:
    run = RunState(run_id="a", created=0.0, status=status, job=a_job(state=state))
    assert job_status.is_waiting(run) == waits


def test_repeated_steps_are_shown_if_there_are_any() -> None:
    assert job_status.describe_restarts(0, 0) == ""
    assert job_status.describe_restarts(1, 23) == "restarted 1 time, 23 steps repeated"
    assert job_status.describe_restarts(2, 0) == "restarted 2 times"
