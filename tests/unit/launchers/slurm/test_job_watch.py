"""Which line of a failed job's log becomes its reason."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from distrain.runners.launchers.slurm.job_watch import (
    LOG_TAIL,
    JobWatch,
    SupervisorRequests,
    failure_line,
)
from distrain.runners.launchers.slurm.script import LOG
from distrain.runners.launchers.supervisor_link import SupervisorLink
from tests.support.records import RunBuilder

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


@pytest.mark.parametrize("is_link", [True, False])
def test_the_log_of_a_job_is_read_in_the_record_only(is_link: bool, tmp_path: Path) -> None:
    record = RunBuilder(tmp_path, launcher="slurm", hosts=["n1"]).end().record
    written = tmp_path / "other.log" if is_link else record.dir / "logs" / LOG
    written.write_text(f"{'x' * LOG_TAIL}\n{CAUSE}\n")
    if is_link:
        (record.dir / "logs" / LOG).symlink_to(written)
    watch = JobWatch(cast(SupervisorLink, None), record, "4711", SupervisorRequests())
    assert failure_line(watch._log_tail()) == ("" if is_link else CAUSE)
