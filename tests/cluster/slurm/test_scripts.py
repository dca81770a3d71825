"""A user's script on the nodes of a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distrain import Run, find
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.test_runs import (
    LONG,
    distrain,
    ended,
    job_of,
    start,
    started,
    user_folder,
)
from tests.support.programs import SAVES, SUM
from tests.support.runs import wait_until

__all__ = ["start", "started", "user_folder"]

JOB = ("--launcher", "slurm", "--set", "slurm.nodes=2", "--set", "slurm.poll_s=0.5")
# As programs do that save before the time limit of a job that has the option --signal.
ENDS_ON_SIGNAL = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready")
signal.sigwait({signal.SIGUSR1})
print("saved")
"""


def outputs(run: Run) -> list[str]:
    return [path.read_text() for path in sorted((run.dir / "logs").glob("rank-*.log"))]


@pytest.mark.parametrize("via", ["torchrun", "srun"])
@pytest.mark.usefixtures("started")
def test_a_script_runs_on_all_nodes(via: str, user_folder: Path) -> None:
    (user_folder / "train.py").write_text(SUM)
    done = distrain("run", *JOB, "--set", f"slurm.via={via}", "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    run = find("latest")
    assert [output.splitlines()[-1] for output in outputs(run)] == ["sum 3 --lr 1"] * 2
    assert run.record.state.hosts == ["n1", "n2"]
    assert "[rank 1] sum 3 --lr 1\n" in done.stdout


@pytest.mark.parametrize("via", ["torchrun", "srun"])
@pytest.mark.usefixtures("started")
def test_a_stop_interrupts_the_ranks_on_all_nodes(
    via: str, user_folder: Path, cluster: Cluster
) -> None:
    (user_folder / "train.py").write_text(SAVES)
    done = distrain("run", "--detach", *JOB, "--set", f"slurm.via={via}", "train.py")
    run = find(done.stdout.strip())
    wait_until(lambda: outputs(run) == ["ready\n", "ready\n"], LONG)
    run.stop()
    assert ended(run) == "stopped", run.reason
    assert all("saved" in output for output in outputs(run))


@pytest.mark.parametrize("via", ["torchrun", "srun"])
@pytest.mark.usefixtures("started")
def test_a_signal_of_the_user_reaches_the_program_alone(
    via: str, user_folder: Path, cluster: Cluster
) -> None:
    (user_folder / "train.py").write_text(ENDS_ON_SIGNAL)
    done = distrain("run", "--detach", *JOB, "--set", f"slurm.via={via}", "train.py")
    run = find(done.stdout.strip())
    wait_until(lambda: outputs(run) == ["ready\n", "ready\n"], LONG)
    cluster.run("scancel", "--signal=USR1", job_of(run))
    assert ended(run) == "completed", run.reason
    assert outputs(run) == ["ready\nsaved\n"] * 2


@pytest.mark.usefixtures("started")
def test_a_script_begins_again_when_its_job_is_requeued(
    user_folder: Path, cluster: Cluster
) -> None:
    (user_folder / "train.py").write_text(SAVES)
    # A requeued job waits for longer than a stop may take.
    changes = ("--set", "slurm.requeue=true", "--set", "report.stop_timeout_s=3")
    done = distrain("run", "--detach", *JOB, *changes, "train.py")
    run = find(done.stdout.strip())
    wait_until(lambda: outputs(run) == ["ready\n", "ready\n"], LONG)
    cluster.run("scontrol", "requeue", job_of(run))
    wait_until(lambda: [text.count("ready") for text in outputs(run)] == [2, 2], LONG)
    assert run.record.state.attempts == 1
    run.stop()
    assert ended(run) == "stopped", run.reason


@pytest.mark.usefixtures("started")
def test_a_program_that_srun_has_started_is_observed(user_folder: Path) -> None:
    (user_folder / "train.py").write_text(
        "import distrain\ndistrain.init()\nfor _ in range(5):\n    distrain.step(samples=1)\n"
    )
    command = ["srun", "--nodes=1", "--ntasks=2", sys.executable, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run = find("latest")
    assert ended(run) == "completed", run.reason
    assert (run.summary()["world_size"], run.summary()["samples"]) == (2, 10)
