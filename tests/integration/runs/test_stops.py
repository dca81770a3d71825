"""Runs that are asked to stop, and runs whose viewer ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distrain import Run, all_runs, find
from distrain.runners.protocol.events import Finished
from tests.support.runs import assert_nothing_left, processes_of, steps_of, wait_until

PRESET = """
strategy = "ddp"
launcher = "torchrun"
[task]
name = "faulty:make"
args = { pace = 0.01 }
[train]
epochs = 1000
threads = 1
[data]
workers = 2
"""
Start = Callable[..., Run]
Viewer = subprocess.Popen[str]


@pytest.fixture
def preset(user_folder: Path) -> Path:
    path = user_folder / "long.toml"
    path.write_text(PRESET)
    return path


@pytest.fixture
def viewer(preset: Path) -> Iterator[Viewer]:
    """Start `distrain run` in its own process group, as a shell's job control does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "distrain", "run", str(preset), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()
    for run in all_runs():
        for left in processes_of(run.record.dir):
            left.kill()


def training() -> Run:
    """Wait until both ranks train and return the run."""
    wait_until(lambda: all_runs())
    run = find("latest")
    wait_until(lambda: min(steps_of(run).get(rank, 0) for rank in (0, 1)) > 5)
    return run


def test_ctrl_c_during_the_launch_cancels_it(preset: Path) -> None:
    command = [sys.executable, "-m", "distrain", "run", str(preset), "--detach"]
    with subprocess.Popen(command, start_new_session=True) as viewer:
        wait_until(lambda: all_runs())
        # when
        os.killpg(viewer.pid, signal.SIGINT)
        # then
        assert viewer.wait(120) == 130
    run = find("latest")
    assert_nothing_left(run)
    assert run.record.status == "stopped"


def test_ctrl_c_stops_at_one_step_with_a_checkpoint_and_resume_continues(viewer: Viewer) -> None:
    run = training()
    # when
    os.killpg(viewer.pid, signal.SIGINT)
    out, err = viewer.communicate(timeout=60)
    # then
    summary = json.loads(out)
    assert viewer.returncode == 130
    assert summary["status"] == "stopped"
    assert "checkpoint" in err
    finished = [event for event in run.events() if isinstance(event, Finished)]
    assert len(finished) == 2
    assert {event.step for event in finished} == {summary["steps"]}
    last = run.record.dir / "checkpoints" / "last.pt"
    assert last.resolve().name == f"step-{summary['steps']:08d}.pt"
    assert_nothing_left(run)
    # and when it is resumed with another strategy and world size
    again = run.resume(
        {"strategy": "allreduce", "devices": "cpu:3", "train.max_steps": summary["steps"] + 5}
    )
    # then it continues from there
    resumed = again.wait(120)
    assert resumed["status"] == "completed"
    assert resumed["steps"] == summary["steps"] + 5
    assert again.record.state.parent == run.id


def test_ctrl_c_twice_ends_at_once(viewer: Viewer) -> None:
    run = training()
    os.killpg(viewer.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(viewer.pid, signal.SIGINT)
    viewer.communicate(timeout=60)
    assert viewer.returncode == 130
    assert run.wait(120)["status"] == "stopped"
    assert_nothing_left(run)


def test_ctrl_c_that_also_ends_the_reader_of_the_output_stops_the_run(viewer: Viewer) -> None:
    run = training()
    assert viewer.stderr is not None
    viewer.stderr.close()  # as tee, in a pipe
    viewer.send_signal(signal.SIGINT)
    assert run.wait(120)["status"] == "stopped"
    assert run.record.last_checkpoint is not None
    assert viewer.wait(60) == 141


def test_signals_that_are_meant_for_programs_change_nothing(viewer: Viewer) -> None:
    """As of the option --signal of sbatch, where srun has started the command."""
    run = training()
    for process in [viewer, *processes_of(run.record.dir)]:
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGUSR2)
    step = steps_of(run)[0]
    wait_until(lambda: not run.is_live or steps_of(run)[0] > step + 20)
    viewer.send_signal(signal.SIGINT)
    viewer.communicate(timeout=60)
    assert viewer.returncode == 130
    assert run.wait(120)["status"] == "stopped", run.reason
    assert_nothing_left(run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_run_outlives_its_viewer(number: signal.Signals, viewer: Viewer) -> None:
    run = training()
    viewer.send_signal(number)
    viewer.wait(120)
    step = steps_of(run)[0]
    wait_until(lambda: steps_of(run)[0] > step + 20)
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert_nothing_left(run)


def test_the_run_outlives_its_terminal(preset: Path) -> None:
    """The viewer gets SIGHUP."""
    tmux = ["tmux", "-L", f"distrain-{os.getpid()}", "-f", os.devnull]
    command = f"{sys.executable} -m runners run {preset}"
    subprocess.run([*tmux, "new-session", "-d", "-x", "100", "-y", "30", command], check=True)
    try:
        run = training()
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    step = steps_of(run)[0]
    wait_until(lambda: steps_of(run)[0] > step + 20)
    run.stop(now=True)
    assert run.wait(120)["status"] == "stopped"
    assert_nothing_left(run)


def test_stop_now_ends_within_seconds_without_a_checkpoint(start: Callable[..., Run]) -> None:
    run = start(train__epochs=1000, checkpoint__every_epochs=0, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(0, 0) > 5)
    run.stop(now=True)
    assert run.wait(120)["status"] == "stopped"
    assert not (run.record.dir / "checkpoints" / "last.pt").exists()
    assert_nothing_left(run)


@pytest.mark.parametrize("launcher", ["spawn", "inline"])
def test_a_stop_before_the_first_step_takes_effect(
    launcher: str, start: Callable[..., Run]
) -> None:
    devices = "cpu:1" if launcher == "inline" else "cpu:2"
    run = start(launcher=launcher, devices=devices, train__epochs=1000)
    run.stop()
    summary = run.wait(120)
    assert summary["status"] == "stopped"
    assert summary["steps"] <= 2
    assert_nothing_left(run)


def test_a_supervisor_that_does_not_answer_is_named(start: Start) -> None:
    alone = {"launcher": "inline", "devices": "cpu:1"}
    run = start(**alone, train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(0, 0) > 5)
    pid = run.record.state.supervisor_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for options in ([], ["--now"]):
        stop = [sys.executable, "-m", "distrain", "stop", run.id, *options]
        done = subprocess.run(stop, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"(process {pid} on " in done.stderr
        assert f"`kill -CONT {pid}` continues it" in done.stderr
    os.kill(pid, signal.SIGCONT)
    assert run.wait(60)["status"] == "stopped"
