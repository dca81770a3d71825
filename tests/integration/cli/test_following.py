"""Given a run, when it is watched: plain lines in a pipe, a picture on a terminal."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from distrain.runners import formatting
from distrain.runners.cli.run_picture import render_run
from distrain.runners.protocol.events import Attempt, Hello, Job
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.state import RunError

from .conftest import Distrain, SampledRun, Start

Fabricate = Callable[..., SampledRun]


@pytest.fixture
def watch(start_plain: Start) -> Start:
    """Return a function that starts `distrain watch latest` with piped output."""
    return partial(start_plain, "-m", "distrain", "watch", "latest")


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    text_read = ""
    for line in process.stdout:
        text_read += line
        if text in line:
            return text_read
    raise AssertionError(f"no {text!r} in {text_read!r}")


def test_an_ended_run_is_printed_and_its_exit_code_returned(
    distrain: Distrain, finished: SampledRun
) -> None:
    done = distrain("watch", "first", FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    kinds = [line.split()[1] for line in done.stdout.splitlines()[:7]]
    per_epoch = ["evaluation", "checkpoint"]
    assert kinds == ["training", *per_epoch, "warning", *per_epoch, "completed"]
    assert "4 epochs · 40 steps · 5,120 samples · 1,280 samples/s" in done.stdout


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        ("stopped", None, 130),
        ("failed", RunError(rank=0, type="ValueError", message="no", traceback="where"), 1),
        ("failed", RunError(rank=0, type="ConfigError", message="no such", usage=True), 2),
    ],
)
def test_the_exit_code_is_that_of_the_run(
    distrain: Distrain, fabricate: Fabricate, status: str, error: RunError | None, code: int
) -> None:
    fabricate().steps(5).end(status, error=error)
    assert distrain("watch", "latest").returncode == code


def test_a_failure_names_the_first_rank_its_log_and_secondary_failures(
    distrain: Distrain, fabricate: Fabricate
) -> None:
    error = RunError(
        rank=2,
        type="ValueError",
        message="bad batch",
        traceback="Traceback (most recent call last):\n  boom",
        step=5,
        secondary=[0, 1, 3],
    )
    run = fabricate(world=4).steps(5).log("rank-2", "boom\n").end("failed", error=error)
    output = distrain("watch", "latest").stderr
    assert output.startswith("distrain: rank 2 failed after step 5: ValueError: bad batch\n")
    assert "\nTraceback (most recent call last):\n  boom\n" in output
    assert "taken down with it: ranks 0–1, 3" in output
    assert f"log: {run.dir}/logs/rank-2.log" in output


def test_a_usage_error_is_one_sentence(distrain: Distrain, fabricate: Fabricate) -> None:
    error = RunError(rank=0, type="TaskError", message="no such folder", usage=True)
    fabricate().end("failed", error=error)
    assert distrain("watch", "latest").stderr == "distrain: no such folder\n"


def test_a_live_run_is_followed_to_its_end(fabricate: Fabricate, watch: Start) -> None:
    run = fabricate().steps(10)
    process = watch("--every", "0.3")
    assert "1,280 samples/s" in read_until(process, "step 10/40  25 %  loss")
    run.steps(10).evaluation(0.9)
    read_until(process, "top1 90.00 %")
    run.steps(20).end()
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "completed" in rest


def test_what_a_queued_run_waits_for_is_printed_when_it_changes(
    fabricate: Fabricate, watch: Start
) -> None:
    run = fabricate()
    run.writer.set_state(status="queued", waiting_for=["GPU 0: run a has it"])
    process = watch()
    head, reason = read_until(process, "waiting").splitlines()
    assert head.split()[1:3] == ["queued", run.id]
    assert reason.endswith("waiting     GPU 0: run a has it")
    both = ["GPU 0: run a has it", "GPU 1: run b has it"]
    run.writer.set_state(waiting_for=both)
    assert "run a" not in read_until(process, "GPU 1: run b has it")
    run.writer.set_state(status="running", waiting_for=[])
    assert "waiting" not in read_until(process, "running")


def test_the_picture_of_a_queued_run_shows_what_it_waits_for(fabricate: Fabricate) -> None:
    run = fabricate()
    run.writer.set_state(status="queued", waiting_for=["GPU 0: run a has it"])
    follower, console = Follower(run.record), Console(width=80)
    follower.new_events()
    with console.capture() as shown:
        console.print(render_run(follower, follower.snapshot(), 80, 10))
    title, *reasons = shown.get().splitlines()
    assert title.startswith("queued")
    assert reasons == ["GPU 0: run a has it"]


def test_job_states_and_attempts_are_lines(fabricate: Fabricate, watch: Start) -> None:
    run = fabricate().steps(10)
    process = watch()
    read_until(process, "progress")
    run.writer.add(Job(time=run.now, id="4711", state="PENDING", reason="Priority", jobs_ahead=2))
    run.writer.add(Attempt(time=run.now, number=1, step=6, lost=10, reason="node-2 failed"))
    run.writer.commit()
    assert "job 4711 PENDING (Priority), 2 jobs ahead" in read_until(process, "4711")
    assert "after step 6, was at 10: node-2 failed" in read_until(process, "attempt")


def test_lines_of_a_slurm_run_are_in_the_order_of_time(fabricate: Fabricate, watch: Start) -> None:
    run = fabricate()
    run.writer.set_state(status="queued", waiting_for=["the job is being submitted"])
    process = watch()
    assert "queued" in read_until(process, "the job is being submitted")
    job = Job(time=time.time(), id="4711", state="RUNNING", nodes=["n1", "n2"])
    run.writer.add(job)
    run.writer.commit()
    read_until(process, "job 4711 RUNNING")
    run.writer.set_state(status="running", job=job, waiting_for=[])
    moment, *output = read_until(process, "running").split()
    assert " ".join(output) == "running job 4711 on n1, n2"
    assert moment >= formatting.time_of_day(job.time)


def test_a_run_that_never_started_has_no_duration(fabricate: Fabricate, distrain: Distrain) -> None:
    run = fabricate()
    run.writer.set_state(started=None)
    run.end("failed", error=RunError(rank=None, type="JobEnded", message="cancelled outside"))
    assert distrain("watch", "latest").stdout.splitlines()[-4].endswith(f"{run.id}, never started")


def test_the_picture_shows_the_job_and_repeated_steps(fabricate: Fabricate) -> None:
    run = fabricate().steps(10)
    run.writer.add(Attempt(time=run.now, number=1, step=6, lost=10))
    run.writer.commit()
    ends = time.time() + 100 * 60
    job = Job(time=run.now, id="4711", state="RUNNING", nodes=["a", "b"], ends=ends)
    run.writer.set_state(job=job, attempts=1)
    follower, console = Follower(run.record), Console(width=120)
    follower.new_events()
    with console.capture() as shown:
        console.print(render_run(follower, follower.snapshot(), 120, 10))
    output = shown.get().splitlines()[1]
    assert "job 4711 RUNNING, 1 h 40 min left, on 2 nodes" in output
    assert "restarted 1 time, 4 steps repeated" in output


def picture_lines(run: SampledRun, width: int = 160) -> list[str]:
    follower, console = Follower(run.record), Console(width=width)
    follower.new_events()
    with console.capture() as shown:
        console.print(render_run(follower, follower.snapshot(), width, 10))
    return shown.get().splitlines()


def test_ranks_of_several_nodes_have_a_node_column(fabricate: Fabricate) -> None:
    run = fabricate(world=2).steps(10)
    assert "node" not in picture_lines(run)[-3].split()
    for rank, host in enumerate(("n1", "n2")):
        run.writer.add(Hello(rank=rank, world_size=2, pid=1000, host=host, device="cpu:0"))
    run.writer.set_state(hosts=["n1", "n2"])
    run.writer.commit()
    head, *ranks = picture_lines(run)[-3:]
    assert head.split()[:3] == ["rank", "node", "device"]
    assert [line.split()[:3] for line in ranks] == [["0", "n1", "cpu:0"], ["1", "n2", "cpu:0"]]


def test_ctrl_c_leaves_and_the_run_continues(fabricate: Fabricate, watch: Start) -> None:
    run = fabricate().steps(10)
    process = watch()
    read_until(process, "progress")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"`distrain watch {run.id}` follows it" in output
    assert run.record.live


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_watch_that_is_ended_by_a_signal_prints_nothing(
    fabricate: Fabricate, watch: Start, number: signal.Signals
) -> None:
    run = fabricate().steps(10)
    process = watch()
    read_until(process, "progress")
    process.send_signal(number)
    _, output = process.communicate(timeout=60)
    assert (process.returncode, output) == (128 + number, "")
    assert run.record.live


def test_log_lines_have_their_origin_as_prefix(distrain: Distrain, finished: SampledRun) -> None:
    assert distrain("logs", "first").stdout == (
        "[launcher] hi\n[rank 0] zero one\n[rank 0] zero two\n[rank 1] one one\n"
    )
    assert distrain("logs", "first", "--rank", "1").stdout == "one one\n"
    assert distrain("logs", "first", "--rank", "launcher").stdout == "hi\n"
    missing = distrain("logs", "first", "--rank", "2")
    assert missing.returncode == 2
    assert "--rank takes 0 to 1, launcher, job or supervisor" in missing.stderr


def test_logs_are_followed_until_the_run_ends(
    fabricate: Fabricate, environment: dict[str, str], tmp_path: Path
) -> None:
    run = fabricate().log("rank-0", "one\npar")
    process = subprocess.Popen(
        [sys.executable, "-m", "distrain", "logs", "latest", "-f"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    read_until(process, "one")
    run.log("rank-0", "tial\n").log("rank-1", "late\n")
    read_until(process, "late")
    run.log("rank-1", "last words").end()
    rest, _ = process.communicate(timeout=60)
    assert rest == "[rank 1] last words\n"
    assert process.returncode == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux for a real terminal")
def test_a_terminal_shows_a_picture_that_stays(
    fabricate: Fabricate, environment: dict[str, str], tmp_path: Path
) -> None:
    run = fabricate("live").steps(20).evaluation(0.91)
    tmux = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / "tmux")]
    command = f"{sys.executable} -m runners watch latest; sleep 60"
    start = [*tmux, "new-session", "-d", "-x", "140", "-y", "30", command]
    subprocess.run(start, env=environment, cwd=tmp_path, check=True)

    def screen_with(text: str) -> str:
        deadline, shown = time.monotonic() + 60, ""
        while time.monotonic() < deadline:
            show = [*tmux, "capture-pane", "-p"]
            shown = subprocess.run(show, capture_output=True, text=True).stdout
            if text in shown:
                return shown
            time.sleep(0.1)
        raise AssertionError(f"no {text!r} in {shown!r}")

    try:
        shown = screen_with("step 20/40  50 %")
        assert "running" in shown
        assert "1,280 samples/s" in shown
        assert "top1 91.00 %" in shown
        (rank,) = [line.split() for line in shown.splitlines() if " cpu:1 " in line]
        assert rank[:4] == ["1", "cpu:1", "training", "20"]
        run.steps(20).end()
        ended = screen_with("4 epochs · 40 steps")
        assert "step 40/40  100 %" in ended
        assert ended.count("samples/s  data") == 1
    finally:
        subprocess.run([*tmux, "kill-server"])
