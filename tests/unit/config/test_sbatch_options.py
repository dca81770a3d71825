"""Options of sbatch that a user may add, and those that are refused."""

from __future__ import annotations

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.sbatch_options import problems
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError

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
def test_options_that_change_the_kind_of_job_are_refused(option: str) -> None:
    (told,) = problems([option])
    assert told.startswith(f"{option!r} cannot be set here: ")


@pytest.mark.parametrize("option", KEYS)
def test_an_option_of_another_key_is_refused_with_that_key(option: str) -> None:
    assert problems([option]) == [f"{option!r} cannot be set here: set {KEYS[option]}"]


@pytest.mark.parametrize("option", ["", "exclusive", "a b", "-", "--", "1-2"])
def test_text_that_is_not_an_option_is_refused(option: str) -> None:
    (told,) = problems([option])
    assert "an option begins with -, and contains its value" in told


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
def test_all_other_options_are_accepted(option: str) -> None:
    assert problems([option]) == []


def test_a_plan_reports_all_refused_options_with_their_key() -> None:
    extra = ["--wait", "--exclusive", "-N2"]
    config = RunConfig().with_changes({"launcher": "slurm", "slurm.extra": extra})
    with pytest.raises(ConfigError) as error:
        plan_here(config)
    assert error.value.problems == [
        ("slurm.extra", "'--wait' cannot be set here: the run itself waits for its job"),
        ("slurm.extra", "'-N2' cannot be set here: set slurm.nodes"),
    ]


def test_a_run_without_slurm_ignores_the_options() -> None:
    plan_here(RunConfig().with_changes({"slurm.extra": ["--wait"], "devices": "cpu:1"}))
