"""What becomes of a job whose launcher is killed; Slurm's commands are played."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners import Run
from runners.events import Notice
from runners.supervisor import ANEW
from tests.e2e.conftest import place, start, wait_until
from tests.runners.slurm.conftest import Plays, kill_launcher, launcher_of

__all__ = ["place", "start"]

Started = Callable[[], Run]
JOB = "JobId=12 JobName=a JobState=$(cat state) Restarts=0 Partition=main NodeList=n1"


@pytest.fixture
def started(place: Path, start: Callable[..., Run], plays: Plays) -> Started:
    """Launch a run whose job waits; `submitted` lists the jobs, `state` is the job's."""
    lines = {
        "sinfo": "echo '127.0.0.1 main*'",
        "sbatch": 'for script; do :; done; echo "12 $script" >> submitted; echo 12',
        "squeue": "case $* in *PENDING*) ;; *) cat submitted ;; esac",
        "scontrol": f'test "$1" = --oneliner && echo "{JOB}"',
        "scancel": "echo CANCELLED > state",
    }
    for name, told in lines.items():
        plays(name, f"cd {place}\n{told}")
    (place / "state").write_text("PENDING")
    (place / "submitted").touch()
    return lambda: start(launcher="slurm", slurm__poll_s=0.1)


def is_known(run: Run) -> bool:
    return bool(run.record.state.job)


def test_a_launcher_that_is_killed_is_started_again_and_goes_on_with_its_job(
    started: Started, place: Path
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    kill_launcher(run)
    launcher_of(run)
    (place / "state").write_text("CANCELLED")
    run.wait(60)
    assert run.record.state.reason == "job 12 was cancelled outside distrain"
    assert len((place / "submitted").read_text().splitlines()) == 1
    notices = [event.text for event in run.events(follow=False) if isinstance(event, Notice)]
    assert "the launcher was killed; another goes on watching the job" in notices


def test_a_launcher_that_is_killed_again_and_again_leaves_no_job(
    started: Started, place: Path
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    for _ in range(1 + ANEW):
        kill_launcher(run)
    run.wait(60)
    assert run.record.state.status == "failed"
    assert run.record.state.reason == "the launcher was killed; job 12 was cancelled"
    assert (place / "state").read_text().strip() == "CANCELLED"


OUT_OF_REACH = "the run at 10.0.0.1:1 is out of reach from n1: Connection refused"


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (f"{OUT_OF_REACH}\nsrun: error: n1: task 0: Exited with exit code 1\n", OUT_OF_REACH),
        ("slurmstepd: error: execve(): no\nslurmstepd-n1: error\nsrun: error\n\n", ""),
        ("", ""),
    ],
)
def test_why_a_job_failed_stands_before_that_it_did(
    started: Started, place: Path, log: str, last: str
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    (run.record.dir / "logs" / "job.log").write_text(log)
    (place / "state").write_text("FAILED ExitCode=1:0")
    run.wait(60)
    end = "job 12 ended with exit code 1"
    told = f"{last}; {end}" if last else end
    assert run.record.state.reason == told


def test_a_job_that_cannot_be_cancelled_is_told(started: Started, plays: Plays) -> None:
    plays("scancel", "echo 'scancel: error: Slurm is down' >&2; exit 1")
    run = started()
    wait_until(lambda: is_known(run))
    for _ in range(1 + ANEW):
        kill_launcher(run)
    run.wait(60)
    said = "the launcher was killed; its job may go on: scancel refused: Slurm is down"
    assert run.record.state.reason == said


def test_a_job_whose_launcher_was_killed_before_it_knew_is_not_submitted_twice(
    started: Started, place: Path, plays: Plays
) -> None:
    plays(
        "sbatch",
        f'cd {place}; for script; do :; done; echo "12 $script" >> submitted\n'
        "while ! test -e goes-on; do sleep 0.1; done; echo 12",
    )
    run = started()
    wait_until((place / "submitted").read_text)
    kill_launcher(run)
    (place / "goes-on").touch()
    wait_until(lambda: is_known(run))
    assert len((place / "submitted").read_text().splitlines()) == 1
    run.stop()
    run.wait(60)
    assert run.record.state.status == "stopped"
    assert (place / "state").read_text().strip() == "CANCELLED"


def test_a_node_that_does_not_reach_the_run_says_so_in_a_sentence() -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody_listens.getsockname()[1]}"
        task = {"DISTRAIN_SOCKET": f"tcp:{place}", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "runners.launchers.node"],
            env={**os.environ, **task, "SLURM_LOCALID": "0"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    here = socket.gethostname()
    said = f"the run at {place} is out of reach from {here}: Connection refused\n"
    assert (done.returncode, done.stderr) == (1, said)
