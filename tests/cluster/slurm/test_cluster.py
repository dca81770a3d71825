"""The cluster for other tests: jobs on two nodes, signals, requeues, a lost connection."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cluster.slurm import network
from tests.cluster.slurm.cluster import Cluster, ClusterError, node
from tests.support import ROOT
from tests.support.runs import wait_until

PRINTS_STARTS = 'echo "start ${SLURM_RESTART_COUNT:-0}"\nexec sleep 600'
PRINTS_SIGNALS = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("USR1", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1)
"""
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.accept()[0].sendall(b"hello")
"""
CLIENT = "import socket, sys; print(socket.create_connection((sys.argv[1], sys.argv[2])).recv(9))"


def state_of(cluster: Cluster, job: str) -> str:
    return cluster.job(job)["JobState"]


def state_of_node(cluster: Cluster, name: str) -> str:
    return cluster.run("sinfo", "--noheader", "--Node", "--nodes", name, "-pmain", "--format=%T")


def test_two_idle_nodes_run_the_tasks_of_a_step_and_reach_each_other(cluster: Cluster) -> None:
    nodes = cluster.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T %c")
    assert nodes.splitlines() == ["n1 idle 8", "n2 idle 8"]
    names = cluster.run("srun", "--nodes=2", "--ntasks-per-node=2", "hostname")
    assert sorted(names.split()) == ["n1", "n1", "n2", "n2"]
    with pytest.raises(ClusterError, match="getent hosts n2 ended with 2"):
        cluster.run("getent", "hosts", "n2", at="n1")
    on_the_bridge = [sys.executable, "-c", SERVER, network.CONTROLLER]
    on_n1 = node("n1").command(sys.executable, "-c", SERVER, node("n1").address)
    for server in (on_the_bridge, on_n1):
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            client = [sys.executable, "-c", CLIENT, server[-1], port]
            assert cluster.run(*client, at="n2") == "b'hello'"


def test_a_requeued_job_restarts_and_counts_its_restarts(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = cluster.submit(PRINTS_STARTS, "--nodes=2", "--open-mode=append", f"--output={log}")
    wait_until(lambda: log.exists() and "start 0" in log.read_text())

    cluster.run("scontrol", "requeue", job)

    wait_until(lambda: "start 1" in log.read_text())
    assert state_of(cluster, job) == "RUNNING"
    assert cluster.job(job)["Restarts"] == "1"


def test_a_cancelled_job_ends(cluster: Cluster) -> None:
    job = cluster.submit("exec sleep 600", "--nodes=2")
    wait_until(lambda: state_of(cluster, job) == "RUNNING")

    cluster.run("scancel", job)

    wait_until(lambda: state_of(cluster, job) == "CANCELLED")


def test_a_job_gets_a_signal_before_its_time_limit(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    step = f"exec srun {sys.executable} -c '{PRINTS_SIGNALS}'"
    limits = ("--time=1", "--signal=USR1@50")
    job = cluster.submit(step, "--nodes=2", *limits, f"--output={log}")
    wait_until(lambda: log.exists() and log.read_text().count("ready") == 2)

    wait_until(lambda: log.read_text().count("USR1") == 2)

    assert state_of(cluster, job) == "RUNNING"


def test_a_preempted_job_in_tiny_is_requeued(cluster: Cluster) -> None:
    preempted = cluster.submit("exec sleep 600", "--nodes=2", "--exclusive", "--partition=tiny")
    wait_until(lambda: state_of(cluster, preempted) == "RUNNING")

    preempting = cluster.submit("exec sleep 600", "--nodes=2", "--exclusive")

    wait_until(lambda: state_of(cluster, preempting) == "RUNNING")
    wait_until(lambda: state_of(cluster, preempted) == "PENDING")
    assert cluster.job(preempted)["Restarts"] == "1"


@pytest.mark.parametrize("lose", [Cluster.cut, Cluster.crash])
def test_a_job_restarts_when_its_lost_node_is_back(
    cluster: Cluster, tmp_path: Path, lose: Callable[[Cluster, str], None]
) -> None:
    log = tmp_path / "log"
    job = cluster.submit(PRINTS_STARTS, "--nodes=2", "--open-mode=append", f"--output={log}")
    wait_until(lambda: log.exists() and "start 0" in log.read_text())

    lose(cluster, "n2")

    wait_until(lambda: state_of_node(cluster, "n2").startswith("down"))
    wait_until(lambda: state_of(cluster, job) == "PENDING")

    cluster.restore("n2")

    wait_until(lambda: "start 1" in log.read_text())


def test_a_job_without_requeue_fails_with_its_node(cluster: Cluster) -> None:
    job = cluster.submit("exec sleep 600", "--nodes=2", "--no-requeue")
    wait_until(lambda: state_of(cluster, job) == "RUNNING")

    cluster.crash("n2")

    wait_until(lambda: state_of(cluster, job) == "NODE_FAIL")


def test_down_leaves_nothing(cluster: Cluster) -> None:
    start_stubborn_job(cluster)
    processes = cluster.processes()
    assert {process.name() for process in processes} >= {"munged", "slurmctld", "slurmd", "sleep"}

    cluster.down()

    wait_until(lambda: not any(is_alive(process) for process in processes))
    assert not network.left()
    assert not cluster.folder.exists()
    assert Cluster.found() is None


def test_a_new_cluster_ends_what_a_killed_process_left(cluster: Cluster) -> None:
    ups = (
        "import os; from tests.cluster.slurm.cluster import Cluster\n"
        "Cluster.up(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", ups], cwd=ROOT, check=False, timeout=200)
    assert done.returncode == -signal.SIGKILL
    left = Cluster.found()
    assert left is not None
    assert not cluster.folder.exists()
    start_stubborn_job(left)
    processes = left.processes()

    after = Cluster.up()

    wait_until(lambda: not any(is_alive(process) for process in processes))
    assert not left.folder.exists()
    assert after.run("srun", "--nodes=2", "hostname")
    after.down()


def test_a_cluster_that_cannot_start_reports_why_and_leaves_nothing(claimed: None) -> None:
    with pytest.raises(ClusterError, match="unrecognized key: Nonsense"):
        Cluster.up(Nonsense="1")
    assert not network.left()
    assert Cluster.found() is None


def test_a_cluster_in_use_is_refused(claimed: None) -> None:
    command = [sys.executable, "-m", "tests.cluster.slurm.cluster", "down"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "another process uses this Slurm cluster\n"


def start_stubborn_job(cluster: Cluster) -> None:
    """Start a job that would continue for long after its daemons have ended."""
    job = cluster.submit("trap '' TERM INT HUP; srun sleep 600", "--nodes=2")
    wait_until(lambda: "sleep" in {process.name() for process in cluster.processes()})
    assert state_of(cluster, job) == "RUNNING"


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
