"""Runs on a real cluster: `distrain` on the controller's machine, ranks on the two nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from distrain import ConfigError, Run
from distrain.runners.horovod import problem
from distrain.runners.launchers.slurm.nodes import any_address, own_address
from distrain.runners.protocol.events import Job, Notice
from tests.cluster.slurm import network
from tests.cluster.slurm.cluster import Cluster, node
from tests.integration.runs.conftest import start, user_folder
from tests.support import ROOT
from tests.support.commands import DISTRAIN
from tests.support.runs import assert_nothing_left, wait_until
from tests.unit.launchers.slurm.conftest import kill_launcher

__all__ = ["start", "user_folder"]

Start = Callable[..., Run]
SLOW = {"task__args": {"pace": 0.3}, "train__epochs": 500}
LONG = 150.0  # seconds, for what Slurm does slowly


@pytest.fixture
def started(cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that launches a run on two nodes with keys changed (`__` for the dot)."""
    return starter(cluster, start, monkeypatch)


def starter(cluster: Cluster, start: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    usual = {"launcher": "slurm", "slurm__nodes": 2, "slurm__poll_s": 0.5, "train__threads": 1}
    return lambda **changes: start(**{**usual, **changes})


def distrain(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end on the controller's machine."""
    return subprocess.run(
        [*DISTRAIN, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LONG,
    )


def jobs(run: Run) -> list[Job]:
    return [event for event in run.events(follow=False) if isinstance(event, Job)]


def notices(run: Run) -> list[str]:
    return [event.text for event in run.events(follow=False) if isinstance(event, Notice)]


def job_of(run: Run) -> str:
    """Wait until the job is submitted and return its id."""
    job: Job = wait_until(lambda: run.record.state.job)
    return job.id


def step_of(run: Run) -> int:
    return max((window.step for window in run.record.latest().values()), default=0)


def each_sample_once(run: Run) -> bool:
    """Return whether the record counts every sample of every epoch, and none twice."""
    state = run.record.state
    assert state.facts is not None
    samples = sum(rank["samples"] for rank in run.record.totals().values())
    return bool(samples == run.record.config.train.epochs * state.facts.train_samples)


def wait_for_step(run: Run, step: int) -> None:
    wait_until(lambda: step_of(run) >= step or not run.is_live, LONG)
    assert run.is_live, run.record.state.reason


def ended(run: Run, seconds: float = LONG) -> str:
    """Wait for the end of the run and return its status."""
    run.wait(seconds)
    assert_nothing_left(run)
    return run.record.state.status


# --- from the first step to the last -----------------------------------------------------------


@pytest.mark.parametrize("via", ["torchrun", "srun"])
def test_a_run_over_two_nodes_completes(started: Start, via: str, user_folder: Path) -> None:
    run = started(slurm__via=via, slurm__tasks_per_node=2, train__epochs=2)
    watched = distrain("watch", run.id, "--runs-dir", str(run.record.dir.parent))
    assert ended(run) == "completed", run.record.state.reason
    assert run.record.state.hosts == ["n1", "n2"]
    order = ["PENDING", "RUNNING", "COMPLETED"]
    states = [state for state in dict.fromkeys(job.state for job in jobs(run)) if state in order]
    # Slurm may start the job before the launcher asks for the first time.
    assert states in (order, order[1:])
    last = jobs(run)[-1]
    assert (last.nodes, last.ended) == (["n1", "n2"], f"job {last.id} completed")
    # its viewer shows the job and the run
    assert watched.returncode == 0, watched.stderr
    for told in (*(f"job {last.id} {state}" for state in order), "all steps"):
        assert told in watched.stdout
    # and the script in its record equals that of a dry run
    (user_folder / "same.toml").write_text(run.record.config.to_toml())
    shown = distrain("run", "./same.toml", "--dry-run")
    real = (run.record.dir / "job.sh").read_text()
    socket = next(line for line in real.splitlines() if "DISTRAIN_SOCKET" in line)
    script = shown.stdout.replace("/RUN", f"/{run.id}").replace("Run RUN", f"Run {run.id}")
    script = script.replace("--job-name=RUN", f"--job-name={run.id[16:]}")
    assert script.replace("export DISTRAIN_SOCKET=tcp:HOST:PORT", socket) == real
    assert f"tcp:{network.CONTROLLER}:" in socket


HOROVOD = {"strategy": "horovod", "slurm__via": "srun"}


@pytest.mark.parametrize("how", [{}, HOROVOD], ids=["ddp", "horovod"])
def test_four_ranks_on_two_nodes_evaluate_as_one_process(
    how: dict[str, str], started: Start, start: Start
) -> None:
    if how and (why := problem()):
        pytest.skip(why)
    weights = {"train__epochs": 0, "task__name": "classification"}  # equal, because of the seed
    far = started(slurm__tasks_per_node=2, **how, **weights)
    here = start(launcher="inline", strategy="single", devices="cpu:1", **weights)
    for run in (far, here):
        assert ended(run) == "completed", run.record.state.reason
    ((found,), (expected,)) = (run.record.evaluations() for run in (far, here))
    assert found.samples == expected.samples
    counts = {name: metric.total for name, metric in expected.metrics.items() if name != "loss"}
    assert {name: found.metrics[name].total for name in counts} == counts


def test_connections_without_the_token_are_ignored(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    script = (run.record.dir / "job.sh").read_text()
    host, port = re.findall(r"DISTRAIN_SOCKET=tcp:(\S+):(\d+)", script)[0]
    hello = '{"type":"hello","rank":0,"token":"guessed","attempt":1}'
    ask = f"exec 3<>/dev/tcp/{host}/{port}; echo '{hello}' >&3; timeout 60 cat <&3; echo over"
    assert cluster.run("bash", "-c", ask, at="n1") == "over"
    log = (run.record.dir / "logs" / "supervisor.log").read_text()
    assert "the first line must be a hello with this run's token" in log
    assert (run.record.dir / "token").read_text() not in script + log
    run.stop()
    assert ended(run) == "stopped"
    assert run.record.state.attempts == 0


def test_ranks_report_to_an_address_that_nodes_reach(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    assert any_address(None) == any_address("main") == node("n1").address
    assert own_address(None) == network.CONTROLLER


# --- what Slurm refuses, or never starts ---------------------------------------------------------


def test_a_refusal_by_slurm_is_reported_in_its_words(started: Start) -> None:
    run = started(slurm__constraint="nonsense")
    assert ended(run) == "failed"
    assert "sbatch failed: " in run.record.state.reason
    assert "Invalid feature specification" in run.record.state.reason
    assert run.record.state.started is None


def test_an_unknown_partition_is_reported_before_anything_starts(started: Start) -> None:
    told = "slurm.partition: there is no partition nonsense; available: main, tiny"
    with pytest.raises(ConfigError, match=told):
        started(slurm__partition="nonsense")


def test_a_job_that_can_never_start_is_reported_and_can_be_stopped(
    started: Start, cluster: Cluster
) -> None:
    run = started(slurm__time="30:00")
    job = job_of(run)
    asks = "it requests 0:30:00, partition main allows 0:10:00 at most"
    said = f"job {job} will not start: {asks}"
    wait_until(lambda: said in notices(run))
    assert run.record.state.status == "queued"

    run.stop()

    assert ended(run) == "stopped"
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert run.summary()["duration_s"] is None


def test_a_waiting_job_shows_its_position(started: Start, cluster: Cluster) -> None:
    first = cluster.submit("exec sleep 600", "--nodes=2", "--exclusive")
    wait_until(lambda: cluster.job(first)["JobState"] == "RUNNING")
    cluster.submit("exec sleep 600", "--nodes=2", "--exclusive")
    run = started(**SLOW)
    wait_until(lambda: job_of(run) and run.record.state.job.jobs_ahead == 1)

    cluster.run("scancel", "--user=root", "--state=RUNNING")
    cluster.run("scancel", first)
    wait_until(lambda: run.record.state.job.jobs_ahead == 0)
    run.stop()
    assert ended(run) == "stopped"


# --- how a job ends before its run --------------------------------------------------------------


def test_a_stop_at_once_cancels_the_job(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)

    run.stop(now=True)

    assert ended(run) == "stopped"
    assert cluster.job(job_of(run))["JobState"] == "CANCELLED"
    assert jobs(run)[-1].ended == ""


def test_a_cancelled_job_ends_its_run(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)

    cluster.run("scancel", job_of(run))

    assert ended(run) == "stopped"
    step = step_of(run)
    told = f"stopped by Slurm after step {step}: job {job_of(run)} was cancelled outside distrain"
    assert run.record.state.reason == told
    assert run.record.last_checkpoint is not None
    assert int(run.record.last_checkpoint.stem.removeprefix("step-")) == step


def test_a_stop_leaves_a_checkpoint_and_no_job_and_a_signal_for_programs_ends_nothing(
    started: Start, cluster: Cluster
) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    cluster.run("scancel", "--signal=USR1", job_of(run))
    wait_for_step(run, step_of(run) + 10)
    run.stop()
    assert ended(run) == "stopped", run.record.state.reason
    assert run.record.last_checkpoint is not None
    assert cluster.job(job_of(run))["JobState"] == "COMPLETED"


def test_a_lost_node_is_named(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)

    cluster.crash("n2")

    assert ended(run) == "failed"
    assert "n2" in run.record.state.reason


def test_a_disconnected_node_is_named_long_before_slurm_notices(
    claimed: None, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.up(SlurmdTimeout="300")
    try:
        run = starter(cluster, start, monkeypatch)(**SLOW)
        wait_for_step(run, 1)
        cluster.cut("n2")
        wait_until(lambda: any("n2 has not answered since" in text for text in notices(run)), LONG)
        run.wait(LONG)
        assert run.record.state.reason.startswith("n2 has not answered since ")
        assert cluster.job(job_of(run))["JobState"] in ("CANCELLED", "COMPLETING")
    finally:
        cluster.down()


def test_a_time_limit_without_a_warning_signal_is_named(started: Start) -> None:
    run = started(**SLOW, slurm__time="1", slurm__warn_s=0)
    assert ended(run) == "stopped"
    told = f"stopped by Slurm after step {step_of(run)}: the time limit of job {job_of(run)} was "
    assert run.record.state.reason == told + "reached: 0:01:00"
    assert run.record.last_checkpoint is not None


def test_a_failed_rank_is_named_instead_of_its_job(started: Start) -> None:
    run = started(task__args={"what": "raise", "step": 3})
    assert ended(run) == "failed"
    assert run.record.state.reason == "rank 1 on n2: the user's own mistake"


def test_a_killed_rank_is_named_with_its_node(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    (pid,) = (info.pid for info in run.record.ranks() if info.rank == 1)
    os.kill(pid, signal.SIGKILL)
    assert ended(run) == "failed"
    assert run.record.state.reason.startswith("rank 1 on n2: killed by SIGKILL")


def test_what_prevents_a_node_from_starting_is_reported(started: Start) -> None:
    run = started(dist__interface="nope0")
    assert ended(run) == "failed"
    assert "this host has no nope0; it has " in run.record.state.reason


def test_a_job_ends_with_its_supervisor(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    job = job_of(run)

    os.kill(run.record.state.supervisor_pid, signal.SIGKILL)

    wait_until(lambda: cluster.job(job)["JobState"] == "CANCELLED")
    assert_nothing_left(run)


def test_a_job_continues_when_its_launcher_is_killed(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    job = job_of(run)
    kill_launcher(run)
    wait_until(lambda: any("is restarted to follow its job" in text for text in notices(run)))
    wait_for_step(run, step_of(run) + 2)

    run.stop()
    assert ended(run) == "stopped"
    assert cluster.job(job)["JobState"] == "COMPLETED"


def test_a_job_that_cannot_report_is_an_error(started: Start) -> None:
    run = started(slurm__report="tcp", report__listen="127.0.0.1")
    assert ended(run) == "failed"
    said = r"cannot reach the run at 127\.0\.0\.1:\d+ from n[12]: Connection refused"
    assert re.search(said, run.record.state.reason), run.record.state.reason


# --- what goes on -------------------------------------------------------------------------------


def test_ranks_save_and_stop_before_the_time_limit(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW, slurm__time="1", slurm__warn_s=40)
    assert ended(run) == "stopped"
    assert any("reaches its time limit" in text for text in notices(run))
    assert run.record.last_checkpoint is not None
    assert cluster.job(job_of(run))["JobState"] == "COMPLETED"


def test_a_run_continues_when_its_job_is_queued_again(started: Start, cluster: Cluster) -> None:
    limits = {"slurm__time": "1", "slurm__warn_s": 40, "slurm__requeue": True}
    run = started(**SLOW | limits, checkpoint__every_epochs=0)
    job = job_of(run)
    wait_until(lambda: run.record.state.attempts == 1, LONG)
    kept = run.record.last_checkpoint
    assert kept is not None
    wait_until(lambda: step_of(run) > int(kept.stem.removeprefix("step-")), LONG)
    assert cluster.job(job)["Restarts"] == "1"

    run.stop()

    assert ended(run) == "stopped"
    assert cluster.job(job)["JobState"] == "COMPLETED"


def test_a_run_continues_from_its_last_checkpoint_after_a_time_limit(
    started: Start, cluster: Cluster
) -> None:
    limits = {"slurm__time": "1", "slurm__warn_s": 0, "slurm__requeue": True}
    run = started(**SLOW | limits, checkpoint__every_steps=5)
    wait_until(lambda: run.record.state.attempts == 1, 2 * LONG)
    run.stop()
    assert ended(run) == "stopped"
    assert "TIMEOUT" in [job.state for job in jobs(run)]


def test_a_run_continues_when_a_failed_node_is_back(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW, slurm__requeue=True, checkpoint__every_steps=2)
    wait_for_step(run, 4)

    cluster.crash("n2")

    wait_until(lambda: run.record.state.job.state == "PENDING", LONG)
    cluster.restore("n2")
    wait_until(lambda: run.record.state.attempts == 1, LONG)
    run.stop()
    assert ended(run) == "stopped"


def test_a_run_continues_when_a_user_requeues_its_job(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW, slurm__requeue=True, checkpoint__every_steps=2)
    wait_for_step(run, 4)

    cluster.run("scontrol", "requeue", job_of(run))

    wait_until(lambda: run.record.state.attempts == 1, LONG)
    (attempt,) = wait_until(lambda: run.record.attempts())
    assert attempt.lost == attempt.step, "there was time to save all"
    run.stop()
    assert ended(run) == "stopped"


@pytest.mark.parametrize("report", ["tcp", "files"])
def test_a_run_continues_after_its_job_was_preempted(
    started: Start, cluster: Cluster, report: str
) -> None:
    run = started(
        **SLOW, slurm__partition="tiny", slurm__requeue=True, slurm__warn_s=0, slurm__report=report
    )
    wait_for_step(run, 4)

    cluster.submit("exec sleep 5", "--partition=main", "--nodes=2", "--exclusive")

    wait_until(lambda: run.record.state.attempts == 1, LONG)
    (attempt,) = wait_until(lambda: run.record.attempts())
    assert attempt.lost == attempt.step
    run.stop()
    assert ended(run) == "stopped"


def test_a_stop_during_a_restart_of_the_ranks_takes_effect(
    started: Start, cluster: Cluster
) -> None:
    run = started(**SLOW, slurm__requeue=True, slurm__prologue=["sleep 5"])
    wait_for_step(run, 4)
    job = job_of(run)
    cluster.run("scontrol", "requeue", job)
    wait_until(lambda: jobs(run)[-1].restarts and jobs(run)[-1].state == "RUNNING", LONG)
    run.stop()
    assert ended(run) == "stopped"
    assert cluster.job(job)["JobState"] == "COMPLETED"


# --- a controller that does not answer ----------------------------------------------------------


def test_a_run_survives_a_controller_that_does_not_answer(started: Start, cluster: Cluster) -> None:
    run = started(**SLOW)
    wait_for_step(run, 1)
    [controller] = [p for p in cluster.processes() if p.name() == "slurmctld"]
    controller.kill()
    controller.wait(120)

    wait_until(lambda: any("does not answer" in text for text in notices(run)), LONG)
    step = step_of(run)
    wait_until(lambda: step_of(run) > step)
    cluster.run("slurmctld")
    wait_until(lambda: "Slurm answers again" in notices(run), LONG)

    run.stop()
    assert ended(run) == "stopped"


# --- ranks that report through files --------------------------------------------------------------


def test_ranks_that_cannot_reach_the_supervisor_are_recorded_by_the_job(started: Start) -> None:
    loopback = {"report__listen": "127.0.0.1"}  # on a node that is the node itself
    run = started(slurm__tasks_per_node=2, train__epochs=2, **loopback)
    assert ended(run) == "completed", run.record.state.reason
    assert any("records the run in a journal" in text for text in notices(run))
    assert each_sample_once(run)
    assert run.record.state.hosts == ["n1", "n2"]


def test_a_stop_reaches_ranks_that_report_by_files(started: Start) -> None:
    run = started(slurm__report="files", **SLOW)
    wait_for_step(run, 2)
    run.stop()
    assert ended(run) == "stopped", run.record.state.reason
    assert run.record.last_checkpoint is not None


def test_a_stall_of_ranks_that_report_by_files_is_named(started: Start) -> None:
    hang = {"what": "hang", "rank": 1, "step": 20}
    run = started(slurm__report="files", task__args=hang)
    stall = wait_until(lambda: run.record.state.current_stall, LONG)
    assert stall.ranks == [1]
    assert stall.first.call.startswith("faulty.py:")
    assert (run.dir / "logs" / "stacks.log").exists()
    run.stop(now=True)
    assert ended(run) == "stopped"


def test_a_job_outlives_its_supervisor_and_is_merged_later(started: Start) -> None:
    run = started(slurm__report="files", task__args={"pace": 0.2}, train__epochs=4)
    wait_for_step(run, 1)
    began = run.record.state.started
    assert began is not None
    before_any_recovery = wait_until(lambda: jobs(run))[0]
    for step in (2, 4, 6):  # its death may be seen in parts: see ORPHANED
        wait_for_step(run, step)
        pid = run.record.state.supervisor_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: run.record.is_unsupervised)
        assert run.is_live, "its job goes on"
        assert run.recover()
        assert not run.recover(), "it is supervised again"
    assert run.record.state.started == began
    assert ended(run) == "completed", run.record.state.reason
    assert each_sample_once(run)
    assert jobs(run)[0] == before_any_recovery


def test_a_job_without_a_supervisor_can_be_stopped(started: Start) -> None:
    run = started(slurm__report="files", **SLOW)
    wait_for_step(run, 2)
    pid = run.record.state.supervisor_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: run.record.is_unsupervised)
    run.stop()
    assert ended(run) == "stopped", run.record.state.reason
    assert run.record.last_checkpoint is not None


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "continued"])
def test_a_job_that_waits_outlives_the_processes_of_the_login_node(
    started: Start, cluster: Cluster, is_stopped: bool
) -> None:
    other = cluster.submit("exec sleep 600", "--nodes=2", "--exclusive")
    wait_until(lambda: cluster.job(other)["JobState"] == "RUNNING")
    run = started()
    job = job_of(run)
    pid = run.record.state.supervisor_pid
    assert pid is not None

    for process in (*psutil.Process(pid).children(recursive=True), psutil.Process(pid)):
        process.kill()
    wait_until(lambda: run.record.is_unsupervised)

    assert cluster.job(job)["JobState"] == "PENDING"
    assert run.is_live
    if is_stopped:
        run.stop()
        assert ended(run) == "stopped", run.record.state.reason
        assert cluster.job(job)["JobState"] == "CANCELLED"
        return
    cluster.run("scancel", other)
    wait_until(lambda: (run.dir / "journal.ndjson").exists(), LONG)
    assert run.recover()
    assert ended(run) == "completed", run.record.state.reason
    assert each_sample_once(run)
