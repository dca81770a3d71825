"""A failing run names the rank that failed first, leaves no process after ten seconds, and keeps
what was recorded before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from distrain import Record, Run
from distrain.runners.records.stall import Stall
from distrain.runners.records.supervisor_check import is_supervised
from tests.support.runs import assert_nothing_left, processes_of, steps_of, wait_until

Start = Callable[..., Run]


@pytest.mark.parametrize(
    ("launcher", "what", "kind", "sentence"),
    [
        ("torchrun", "raise", "ValueError", "the user's own mistake"),
        ("torchrun", "vanish", "Exit", "exited with code 5"),
        ("torchrun", "kill", "SIGKILL", "killed by SIGKILL after step"),
        ("spawn", "raise", "ValueError", "the user's own mistake"),
        ("spawn", "exit", "SystemExit", "exited with code 3"),
        ("spawn", "kill", "SIGKILL", "killed by SIGKILL after step"),
    ],
)
def test_a_rank_that_fails_in_training_is_named(
    launcher: str, what: str, kind: str, sentence: str, start: Start
) -> None:
    run = start(launcher=launcher, task__args={"what": what, "rank": 1, "step": 20})
    summary = run.wait(120)
    error = run.record.state.error
    assert summary["status"] == "failed"
    assert error is not None
    assert (error.rank, error.type) == (1, kind)
    assert sentence in error.message
    assert set(error.secondary) <= {0}
    if what == "raise":
        assert "faulty.py" in error.traceback
    assert summary["steps"] >= 12  # the first epoch is recorded
    assert (run.record.dir / "logs" / "rank-1.log").read_text().startswith("rank 1 is about to")
    assert not is_supervised(run.record.state)  # nothing writes in the folder any more
    assert_nothing_left(run)


@pytest.mark.parametrize("what", ["raise", "vanish"])
def test_a_rank_that_fails_before_training_is_named(what: str, start: Start) -> None:
    run = start(task__args={"what": what, "rank": 0, "step": 0})
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert error.rank == 0
    if what != "raise":
        assert "before its first step" in error.message
    assert_nothing_left(run)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("raise something unspeakable", "UnspeakableError"),
        ("raise a flood", "ValueError"),
        ("interrupt", "KeyboardInterrupt"),
    ],
)
def test_every_kind_of_exception_is_reported(what: str, kind: str, start: Start) -> None:
    run = start(launcher="inline", devices="cpu:1", task__args={"what": what, "rank": 0, "step": 3})
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (0, kind)
    assert_nothing_left(run)


def test_rank_variables_of_another_launcher_are_ignored(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")
    run = start(launcher="inline", devices="cpu:1", strategy="ddp", train__epochs=1)
    assert run.wait(120)["status"] == "completed"


def test_a_rank_killed_while_its_loaders_work_is_named(start: Start) -> None:
    run = start(data__workers=2, train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    pid = next(rank.pid for rank in run.record.ranks() if rank.rank == 1)
    os.kill(pid, signal.SIGKILL)
    assert run.wait(120)["error"]["type"] == "SIGKILL"
    assert_nothing_left(run)


def test_inline_reports_the_signal_as_well(start: Start) -> None:
    run = start(
        launcher="inline", devices="cpu:1", task__args={"what": "kill", "rank": 0, "step": 3}
    )
    assert run.wait(120)["error"]["type"] == "SIGKILL"
    assert_nothing_left(run)


def test_nan_ends_the_run_at_one_step_without_spoiling_the_checkpoint(start: Start) -> None:
    run = start(task__args={"what": "nan", "rank": 1, "step": 18}, checkpoint__every_epochs=1)
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type, error.step) == (1, "NonFiniteLoss", 18)
    finished = [event for event in run.events() if type(event).__name__ == "Finished"]
    assert len({event.step for event in finished}) == 1
    assert (run.record.dir / "checkpoints" / "last.pt").resolve().name == "step-00000012.pt"
    assert_nothing_left(run)


def test_nan_is_only_reported_if_the_config_continues_on_nan(start: Start) -> None:
    run = start(task__args={"what": "nan", "rank": 1, "step": 18}, train__on_nan="continue")
    assert run.wait(120)["status"] == "completed"
    notices = [e.text for e in run.events() if type(e).__name__ == "Notice"]
    assert any("nan at step 18" in text for text in notices)


def test_a_rank_absent_from_a_collective_is_named(start: Start) -> None:
    run = start(task__args={"what": "hang", "rank": 1, "step": 20}, dist__timeout_s=10)
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (1, "Hang")
    assert "rank 0 at step" in error.message
    assert_nothing_left(run)


def stall_of(run: Run, ranks: list[int]) -> Stall | None:
    """Return the stall in which these ranks are absent, unless they have not begun to train."""
    stall = run.record.state.stall
    has_begun = stall and stall.ranks == ranks and stall.first and stall.first.step
    return stall if has_begun else None


def test_the_absent_rank_of_a_stall_is_named_and_its_stack_kept(start: Start) -> None:
    run = start(task__args={"what": "hang", "rank": 1, "step": 20}, report__stall_s=2)
    stall = wait_until(lambda: stall_of(run, [1]))
    assert run.status == "running"
    assert stall.waiting in ("backward", "collective")
    waiting, absent = stall.positions
    assert "faulty.py" in absent.call
    assert "all_reduce" in waiting.collective
    assert waiting.sequence > absent.sequence
    answers = {answer.rank: answer for answer in run.read_stacks()}
    assert answers.keys() == {0, 1}
    assert absent.call.partition(":")[0] in answers[1].threads[0].frames[-1].file
    kept = (run.dir / "logs" / "stacks.log").read_text()
    assert "rank 0, main thread:" in kept
    assert "rank 1, main thread:" in kept
    assert "rank 0, pending collectives:\n  gloo:all_reduce" in kept
    run.stop(now=True)
    assert run.wait(120)["status"] == "stopped"
    assert_nothing_left(run)


def test_a_frozen_rank_is_named_and_the_stall_ends_with_it(start: Start) -> None:
    run = start(report__stall_s=1, train__epochs=1000, task__args={"pace": 0.01})
    pid = wait_until(lambda: [r.pid for r in run.record.ranks() if r.rank == 0 and r.step > 20])[0]
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: stall_of(run, [0])).first.condition == "stopped by a signal"
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: run.record.state.stall is None)
    run.stop(now=True)
    assert run.wait(120)["status"] == "stopped"


def test_the_stack_of_a_rank_that_cannot_run_python_is_read_from_outside(start: Start) -> None:
    what = "hold the lock of Python"
    run = start(task__args={"what": what, "rank": 1, "step": 20}, report__stall_s=2)
    position = wait_until(lambda: stall_of(run, [1])).first
    assert (position.condition, position.phase) == ("not responding", "forward")
    assert position.call.startswith("faulty.py:")
    run.stop(now=True)
    run.wait(120)
    assert "in act" in (run.dir / "logs" / "stacks.log").read_text()
    notices = [event.text for _, event in run.record.events(kinds=("notice",))]
    assert "continues" not in notices[-1]  # it may have stalled before its first step


def test_a_rank_that_has_finished_and_does_not_exit_is_named(start: Start) -> None:
    run = start(task__args={"what": "linger", "rank": 1})
    stall = wait_until(lambda: stall_of(run, [1]))
    assert stall.first.phase == "exit"
    run.stop(now=True)
    run.wait(120)
    assert_nothing_left(run)


def test_a_graceful_stop_that_is_impossible_is_forced(start: Start, user_folder: object) -> None:
    run = start(task__args={"what": "hang", "rank": 1, "step": 20}, report__stop_timeout_s=2)
    wait_until(lambda: os.path.exists("hanging"))
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert "and was forced: rank 1 is in forward (faulty.py:" in run.reason
    assert "faulty.py" in (run.dir / "logs" / "stacks.log").read_text()
    assert_nothing_left(run)


def test_a_rank_that_was_suspended_is_named_after_a_forced_stop(start: Start) -> None:
    run = start(train__epochs=1000, task__args={"pace": 0.01}, report__stop_timeout_s=1)
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    os.kill(run.record.ranks()[1].pid, signal.SIGSTOP)
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert "and was forced: rank 1 is stopped by a signal" in run.reason
    assert_nothing_left(run)


@pytest.mark.parametrize("launcher", ["spawn", "inline"])
def test_a_rank_that_cannot_be_killed_is_named(launcher: str, start: Start) -> None:
    devices = "cpu:1" if launcher == "inline" else "cpu:2"
    run = start(launcher=launcher, devices=devices, train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(0, 0) > 5)
    pid = run.record.ranks()[0].pid
    with unkillable(pid):
        run.stop(now=True)
        assert run.wait(120)["status"] == "stopped"
    assert f"rank 0 (process {pid}) has not ended after SIGKILL" in run.reason
    assert_nothing_left(run)


@contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """Keep a process in the kernel (state D), as a file system that does not answer does."""
    group = Path(f"/sys/fs/cgroup/freezer/distrain-{pid}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("this machine has no freezer of cgroup v1")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@pytest.mark.parametrize(("launcher", "context"), [("torchrun", "fork"), ("spawn", "forkserver")])
def test_killing_the_supervisor_ends_every_process_and_keeps_the_record(
    launcher: str, context: str, start: Start
) -> None:
    loaders = {"data__workers": 2, "data__worker_context": context}
    run = start(launcher=launcher, train__epochs=1000, task__args={"pace": 0.01}, **loaders)
    wait_until(lambda: steps_of(run).get(0, 0) > 5)
    assert len(processes_of(run.record.dir)) >= 6  # supervisor, launcher, 2 ranks, 2 loaders
    supervisor = run.record.state.supervisor_pid
    assert supervisor is not None
    psutil.Process(supervisor).kill()
    assert_nothing_left(run)
    summary = run.wait(120)
    assert summary["status"] == "failed"
    assert summary["error"]["type"] == "SupervisorLost"
    assert summary["steps"] > 5


def test_the_launcher_is_named_if_somebody_ends_it(start: Start) -> None:
    run = start(launcher="torchrun", train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    launcher_of(run).terminate()
    assert run.wait(120)["status"] == "failed"
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (None, "LauncherFailed")
    assert "killed by SIGTERM" in error.message
    assert_nothing_left(run)


def test_a_rank_killed_before_it_connects_is_named(start: Start) -> None:
    run = start(launcher="torchrun")
    rank_1 = wait_until(lambda: [p for p in launcher_of(run).children() if has_rank(p, 1)])[0]
    rank_1.kill()
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (1, "SIGKILL")
    assert_nothing_left(run)


def test_a_loader_process_that_is_killed_is_named(start: Start) -> None:
    run = start(data__workers=2, train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    pid = next(rank.pid for rank in run.record.ranks() if rank.rank == 1)
    loader = psutil.Process(pid).children()[0]
    loader.kill()
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (1, "RuntimeError")
    # torch notices it first, or distrain.
    assert re.search(rf"pid(\(s\))? {loader.pid}\b", error.message), error.message
    assert_nothing_left(run)


def launcher_of(run: Run) -> psutil.Process:
    return wait_until(lambda: psutil.Process(run.record.state.supervisor_pid).children())[0]


def has_rank(process: psutil.Process, rank: int) -> bool:
    try:
        return process.environ().get("RANK") == str(rank)
    except psutil.Error:
        return False


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_run_whose_folder_is_gone_ends(is_moved: bool, start: Start, tmp_path: Path) -> None:
    run = start(train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: steps_of(run).get(1, 0) > 5)
    supervisor = psutil.Process(run.record.state.supervisor_pid)
    moved = tmp_path / "moved"
    run.record.dir.parent.rename(moved)
    if not is_moved:
        shutil.rmtree(moved)
    supervisor.wait(60)
    assert_nothing_left(run)
    assert not run.record.dir.exists()
    if is_moved:
        record = Record(moved / run.id)
        assert record.state.status == "failed"
        assert "was moved or deleted" in record.state.reason
        assert record.summary()["steps"] > 5
        log = (record.dir / "logs" / "supervisor.log").read_text()
        assert "was moved or deleted, so the run ends" in log
        assert "Traceback" not in log


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=1200k tmpfs runs
"$0" -m runners run single --set train.epochs=500 --json
"$0" -m runners show latest --json
"$0" -m runners export latest --to jsonl | wc -l
"""
IN_A_MOUNT_SPACE = ["unshare", "--mount", "--map-root-user", "bash"]


def test_a_full_disk_ends_the_run_with_a_readable_record(user_folder: Path) -> None:
    (user_folder / "runs").mkdir()
    if subprocess.run([*IN_A_MOUNT_SPACE, "-c", "mount -t tmpfs tmpfs runs"]).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    done = subprocess.run(
        [*IN_A_MOUNT_SPACE, "-c", ON_A_SMALL_DISK, sys.executable], capture_output=True, text=True
    )
    decoder = json.JSONDecoder()
    summary, end = decoder.raw_decode(done.stdout)
    shown, _ = decoder.raw_decode(done.stdout[end:].lstrip())
    assert summary["status"] == shown["status"] == "failed"
    assert "No space left on device" in summary["error"]["message"]
    assert summary["steps"] == shown["ranks"][0]["step"] > 0
    assert int(done.stdout.split()[-1]) > summary["epochs"] > 0


ON_A_FULL_DISK = """
mount -t tmpfs -o size=48k tmpfs runs
"$0" -m runners run single
"$0" -m runners show latest
"""


def test_a_run_that_finds_no_space_at_its_start_says_so(user_folder: Path) -> None:
    (user_folder / "runs").mkdir()
    if subprocess.run([*IN_A_MOUNT_SPACE, "-c", "mount -t tmpfs tmpfs runs"]).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    done = subprocess.run(
        [*IN_A_MOUNT_SPACE, "-c", ON_A_FULL_DISK, sys.executable], capture_output=True, text=True
    )
    assert "No space left on device" in done.stderr
    assert done.stdout.startswith("failed")
    assert "No space left on device" in done.stdout


def test_a_module_that_raises_at_import_shows_its_traceback(
    start: Start, user_folder: object
) -> None:
    with open("broken.py", "w") as file:
        file.write("import nonexistent_package\n\ndef make(): ...\n")
    run = start(task__name="broken:make", launcher="inline", devices="cpu:1")
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert error.type == "ModuleNotFoundError"
    assert "broken.py" in error.traceback
    assert_nothing_left(run)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data__train_limit": 1}, "2 ranks cannot share 1"),
        ({"dist__backend": "mpi"}, "built without mpi"),
    ],
)
def test_a_mistake_that_only_ranks_can_find_is_one_sentence(
    changes: dict[str, object], sentence: str, start: Start
) -> None:
    run = start(**changes)
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert error.usage
    assert sentence in error.message
    assert not error.traceback
    assert_nothing_left(run)
