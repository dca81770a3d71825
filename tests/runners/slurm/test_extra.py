"""Options of sbatch that a person may add, and those that would make another job of the run."""

from __future__ import annotations

import pytest

from runners.config import RunConfig
from runners.errors import ConfigError
from runners.plan import make_plan
from runners.slurm.extra import problems

QUEUES_NOTHING = ("--test-only", "--help", "-h", "--usage", "--version", "-V", "-HV")
ANOTHER_JOB = ("--array=1-2", "-a1-2", "--arr=1-2", "--wait", "-W", "-HW", "--wrap=ls", "--par")
OURS = ("--output=x", "-ox", "-e x", "--open-mode=truncate", "-Mother", "--cluster=other")
KEYS = {
    "--nodes=2": "slurm.nodes",
    "-N2": "slurm.nodes",
    "-n 4": "slurm.tasks_per_node",
    "--ntasks=4": "slurm.tasks_per_node",
    "--ntasks-per-node=4": "slurm.tasks_per_node",
    "-plong": "slurm.partition",
    "--requeue": "slurm.requeue = true",
    "--no-requeue": "slurm.requeue = false",
}


@pytest.mark.parametrize("option", [*QUEUES_NOTHING, *ANOTHER_JOB, *OURS])
def test_what_makes_another_job_of_a_run_is_refused(option: str) -> None:
    (told,) = problems([option])
    assert told.startswith(f"{option!r} cannot be here: ")


@pytest.mark.parametrize("option", KEYS)
def test_what_another_key_decides_names_it(option: str) -> None:
    assert problems([option]) == [f"{option!r} cannot be here: set {KEYS[option]}"]


@pytest.mark.parametrize("option", ["", "exclusive", "a b", "-", "--", "1-2"])
def test_what_is_no_option_is_refused(option: str) -> None:
    (told,) = problems([option])
    assert "an option begins with -, and its value is part of it" in told


@pytest.mark.parametrize(
    "option",
    [
        "--exclusive",
        "--comment=a b",
        "--job-name=mine",
        "-Jmine",
        "--mem-per-cpu=2G",
        "--nodelist=n1",
        "--wait-all-nodes=1",
        "--verbose",
        "--gres=gpu:a100:4",
        "--export=ALL,A=1",
        "--error-nothing-of-ours",
        "-C gpu",
        "-c4",
        "-H",
        "-t 1:00",
        "-wn1",
    ],
)
def test_all_else_is_slurms_business(option: str) -> None:
    assert problems([option]) == []


def test_a_plan_tells_all_of_them_with_their_key() -> None:
    extra = ["--wait", "--exclusive", "-N2"]
    config = RunConfig().with_changes({"launcher": "slurm", "slurm.extra": extra})
    with pytest.raises(ConfigError) as error:
        make_plan(config)
    assert error.value.problems == [
        ("slurm.extra", "'--wait' cannot be here: the run itself waits for its job"),
        ("slurm.extra", "'-N2' cannot be here: set slurm.nodes"),
    ]


def test_a_run_without_slurm_does_not_mind() -> None:
    make_plan(RunConfig().with_changes({"slurm.extra": ["--wait"], "devices": "cpu:1"}))
