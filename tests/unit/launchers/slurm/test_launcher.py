"""What happens to a job whose launcher is killed; Slurm's commands are replaced."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import Run
from distrain.runners.protocol.events import Notice
from distrain.runners.supervision.launcher_process import MAX_RESTARTS
from tests.integration.runs.conftest import start, user_folder
from tests.support.runs import wait_until
from tests.unit.launchers.slurm.conftest import Plays, kill_launcher, launcher_of

__all__ = ["start", "user_folder"]

Started = Callable[[], Run]
JOB = "JobId=12 JobName=a JobState=$(cat state) Restarts=0 Partition=main NodeList=n1"


@pytest.fixture
def started(user_folder: Path, start: Callable[..., Run], plays: Plays) -> Started:
    """Launch a run whose job waits; `submitted` lists the jobs, `state` is the job's."""
    lines = {
        "sinfo": "echo '127.0.0.1 main*'",
        "sbatch": 'for script; do :; done; echo "12 $script" >> submitted; echo 12',
        "squeue": "case $* in *PENDING*) ;; *) cat submitted ;; esac",
        "scontrol": f'test "$1" = --oneliner && echo "{JOB}"',
        "scancel": "echo CANCELLED > state",
    }
    for name, text in lines.items():
        plays(name, f"cd {user_folder}\n{text}")
    (user_folder / "state").write_text("PENDING")
    (user_folder / "submitted").touch()
    return lambda: start(launcher="slurm", slurm__poll_s=0.1)


def is_known(run: Run) -> bool:
    return bool(run.record.state.job)


def test_a_killed_launcher_is_restarted_and_follows_its_job(
    started: Started, user_folder: Path
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    kill_launcher(run)
    launcher_of(run)
    (user_folder / "state").write_text("CANCELLED")
    run.wait(60)
    assert run.record.state.reason == "job 12 was cancelled outside distrain"
    assert len((user_folder / "submitted").read_text().splitlines()) == 1
    notices = [event.text for event in run.events(follow=False) if isinstance(event, Notice)]
    assert "the launcher was killed and is restarted to follow its job" in notices


def test_a_launcher_that_is_killed_repeatedly_leaves_no_job(
    started: Started, user_folder: Path
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    for _ in range(1 + MAX_RESTARTS):
        kill_launcher(run)
    run.wait(60)
    assert run.record.state.status == "failed"
    assert run.record.state.reason == "the launcher was killed; job 12 was cancelled"
    assert (user_folder / "state").read_text().strip() == "CANCELLED"


OUT_OF_REACH = "cannot reach the run at 10.0.0.1:1 from n1: Connection refused"


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (f"{OUT_OF_REACH}\nsrun: error: n1: task 0: Exited with exit code 1\n", OUT_OF_REACH),
        ("slurmstepd: error: execve(): no\nslurmstepd-n1: error\nsrun: error\n\n", ""),
        ("", ""),
    ],
)
def test_the_cause_of_a_failed_job_comes_first(
    started: Started, user_folder: Path, log: str, last: str
) -> None:
    run = started()
    wait_until(lambda: is_known(run))
    (run.record.dir / "logs" / "job.log").write_text(log)
    (user_folder / "state").write_text("FAILED ExitCode=1:0")
    run.wait(60)
    end = "job 12 ended with exit code 1"
    text = f"{last}; {end}" if last else end
    assert run.record.state.reason == text


def test_a_job_that_cannot_be_cancelled_is_reported(started: Started, plays: Plays) -> None:
    plays("scancel", "echo 'scancel: error: Slurm is down' >&2; exit 1")
    run = started()
    wait_until(lambda: is_known(run))
    for _ in range(1 + MAX_RESTARTS):
        kill_launcher(run)
    run.wait(60)
    text = "the launcher was killed; its job may still run: scancel failed: Slurm is down"
    assert run.record.state.reason == text


def test_a_job_is_not_submitted_twice_if_its_launcher_is_killed_early(
    started: Started, user_folder: Path, plays: Plays
) -> None:
    plays(
        "sbatch",
        f'cd {user_folder}; for script; do :; done; echo "12 $script" >> submitted\n'
        "while ! test -e goes-on; do sleep 0.1; done; echo 12",
    )
    run = started()
    wait_until((user_folder / "submitted").read_text)
    kill_launcher(run)
    (user_folder / "goes-on").touch()
    wait_until(lambda: is_known(run))
    assert len((user_folder / "submitted").read_text().splitlines()) == 1
    run.stop()
    run.wait(60)
    assert run.record.state.status == "stopped"
    assert (user_folder / "state").read_text().strip() == "CANCELLED"


def test_a_node_that_cannot_reach_the_run_reports_one_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        task = {"DISTRAIN_SOCKET": f"tcp:{address}", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "distrain.runners.launchers.node"],
            env={**os.environ, **task, "SLURM_LOCALID": "0"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    here = socket.gethostname()
    text = f"cannot reach the run at {address} from {here}: Connection refused\n"
    assert (done.returncode, done.stderr) == (1, text)
