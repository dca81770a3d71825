"""Which line of a failed job's log becomes its reason."""

from __future__ import annotations

import pytest

from distrain.runners.launchers.slurm.job_watch import failure_line

CAUSE = "cannot reach the run at 127.0.0.1:4001 from n1: Connection refused"


@pytest.mark.parametrize(
    "after",
    [
        "",
        "\n",
        "srun: error: n1: task 0: Exited with exit code 1\n",
        "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED ***\n",
        "ended by SIGTERM\nsrun: error: n2: task 1: Exited with exit code 1\n",
    ],
)
def test_the_cause_is_found_in_front_of_its_consequences(after: str) -> None:
    assert failure_line(f"module loaded\n{CAUSE}\n{after}") == CAUSE


def test_a_log_of_consequences_names_no_cause() -> None:
    assert failure_line("srun: error: n1: task 0: Killed\nended by SIGTERM\n") == ""
