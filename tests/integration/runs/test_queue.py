"""Runs that queue for busy devices: when each starts, and what it waits for."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrain import Record, Run, RunConfig
from distrain.runners import formatting, supervisor_requests
from distrain.runners.config.planning import plan_here
from distrain.runners.errors import DistrainError
from distrain.runners.records.folder import create_run
from distrain.runners.records.meta import Meta
from distrain.runners.supervision.queue_order import move, read_queue
from distrain.runners.system.devices import Device
from distrain.runners.system.host import count_cores
from tests.support import ROOT
from tests.support.fake_nvml import FakeNvml, gpu, uuid_of
from tests.support.runs import wait_until

CPU, GPU = Device(kind="cpu", index=0), Device(kind="cuda", index=0, uuid=uuid_of(0))

# A rank without torch, which trains until the test has seen enough.
RANK = """
import os, time
from pathlib import Path
from distrain import Reporter
from distrain.runners.protocol.events import Finished, Phase
with Reporter.from_env() as reporter:
    reporter.send(Phase(time=time.time(), rank=0, phase="training"))
    while not Path(os.environ["DISTRAIN_RUN"], "enough").exists():
        time.sleep(0.02)
    reporter.send(Finished(time=time.time(), rank=0, step=1))
"""


class Entered(Run):
    """A run whose supervisor is a child of the test."""

    process: subprocess.Popen[bytes]

    @property
    def status(self) -> str:
        return self.record.status

    @property
    def reasons(self) -> list[str]:
        return self.record.state.waiting_for

    def is_training(self) -> bool:
        return any(rank.phase == "training" for rank in self.record.ranks())

    def finish(self) -> dict[str, Any]:
        (self.record.dir / "enough").touch()
        return self.wait(120)


Enter = Callable[..., Entered]


@pytest.fixture(autouse=True)
def own_queue(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(user_folder / "queue"))


@pytest.fixture
def enter(user_folder: Path) -> Iterator[Enter]:
    """Return a function that starts the supervisor of a run that needs all cores or a GPU.

    It returns once the supervisor listens.
    """
    script = user_folder / "rank.py"
    script.write_text(RANK)
    entered: list[Entered] = []

    def one(
        name: str, *, queue: bool = True, device: Device = CPU, env: dict[str, str] | None = None
    ) -> Entered:
        changes = {"strategy": "single", "train.threads": count_cores(), "report.sample_s": 0.5}
        config = RunConfig().with_changes(changes)
        folder = create_run(
            user_folder / "runs",
            config,
            plan=plan_here(config, [device]),
            word=name,
            meta=Meta(name=name),
            queue=queue,
        )
        run = Entered(Record(folder))
        helper = str(ROOT / "tests" / "support" / "plain_ranks.py")
        run.process = subprocess.Popen(
            [sys.executable, helper, str(folder), str(script)],
            env={**os.environ, **(env or {}), "PYTHONPATH": str(ROOT / "src")},
            start_new_session=True,
        )
        entered.append(run)
        wait_until(lambda: run.record.state.socket)
        return run

    yield one
    for run in entered:
        (run.record.dir / "enough").touch()
        run.process.kill()
        run.process.wait()


def test_three_runs_start_one_after_another_in_order(enter: Enter) -> None:
    one, two, three = enter("one"), enter("two"), enter("three")
    wait_until(one.is_training)
    wait_until(lambda: two.reasons and three.reasons)
    # then each reports what it waits for
    assert [run.status for run in (one, two, three)] == ["running", "queued", "queued"]
    (reason,) = two.reasons
    used = f"CPU: {formatting.plural(count_cores(), 'core')} in use by run {one.id} (one)"
    assert reason == f"{used}; needs {count_cores()} of {count_cores()}"
    assert three.reasons == [*two.reasons, f"CPU: run {two.id} (two) is ahead in the queue"]
    # and starts when the devices are free, not before
    assert one.finish()["status"] == "completed"
    wait_until(two.is_training)
    wait_until(lambda: three.reasons != two.reasons and "(two)" in three.reasons[0])
    assert three.status == "queued"
    assert two.reasons == []
    assert two.finish()["status"] == "completed"
    wait_until(three.is_training)
    assert three.finish()["status"] == "completed"
    # and its duration starts then
    states = [run.record.state for run in (one, two, three)]
    assert all(a.ended <= b.started for a, b in itertools.pairwise(states))  # type: ignore[operator]
    assert three.summary()["duration_s"] == states[2].ended - states[2].started  # type: ignore[operator]


def test_a_run_that_does_not_queue_starts_alongside_the_others(enter: Enter) -> None:
    one, two = enter("one"), enter("two")
    unqueued = enter("unqueued", queue=False)
    wait_until(one.is_training)
    wait_until(unqueued.is_training)
    # then queued runs wait for it as well
    wait_until(lambda: "(unqueued)" in "".join(two.reasons))
    one.finish()
    wait_until(lambda: f"in use by run {unqueued.id} (unqueued);" in "".join(two.reasons))
    assert two.status == "queued"
    unqueued.finish()
    wait_until(two.is_training)


def test_a_queued_run_that_is_stopped_never_starts(enter: Enter) -> None:
    one, two, three = enter("one"), enter("two"), enter("three")
    two.stop()
    summary = two.wait(120)
    assert summary["status"] == "stopped"
    assert summary["duration_s"] is None
    state = two.record.state
    assert state.reason == "removed from the queue"
    assert (state.started, state.waiting_for, state.socket) == (None, [], "")
    assert not (two.record.dir / "logs" / "launcher.log").exists()
    wait_until(lambda: two.process.poll() is not None)
    # and the next one does not wait for it
    one.finish()
    wait_until(three.is_training)


def test_a_queued_run_whose_folder_was_moved_leaves_the_queue(enter: Enter) -> None:
    one, two = enter("one"), enter("two")
    wait_until(lambda: two.reasons)
    moved = two.dir.rename(two.dir.with_name("moved"))
    wait_until(lambda: two.process.poll() is not None)
    state = Record(moved).state
    assert state.status == "failed"
    assert "was moved or deleted" in state.reason
    assert [each.entry.run_id for each in read_queue()] == [one.id]
    moved.rename(two.dir)  # for the fixture


def test_a_run_that_is_stopped_twice_ends_without_a_complaint(
    enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two = enter("one"), enter("two")
    Path(two.record.state.socket.removeprefix("unix:")).unlink()
    send = supervisor_requests.send_to_supervisor

    def send_late(*words: Any) -> str:
        two.process.terminate()
        return send(*words)

    # the second stop arrives when the supervisor no longer listens, and has not ended yet
    monkeypatch.setattr(supervisor_requests, "send_to_supervisor", send_late)
    two.stop()
    assert two.status == "stopped"


def test_a_supervisor_that_is_killed_leaves_its_devices_to_the_next(enter: Enter) -> None:
    one, two, three = enter("one"), enter("two"), enter("three")
    wait_until(one.is_training)
    one.process.kill()
    one.process.wait()
    wait_until(two.is_training)
    assert one.status == "failed"
    # and so does a supervisor that is killed in the queue
    wait_until(lambda: three.reasons)
    four = enter("four")
    wait_until(lambda: "(three)" in "".join(four.reasons))
    three.process.kill()
    three.process.wait()
    assert (three.status, three.reasons) == ("failed", [])
    wait_until(lambda: "(three)" not in "".join(four.reasons))
    two.finish()
    wait_until(four.is_training)


def test_a_queued_run_waits_until_runs_and_programs_have_left_the_gpu(
    enter: Enter, fake_nvml: FakeNvml
) -> None:
    seen = {key: fake_nvml.environment[key] for key in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    program = subprocess.Popen(["sleep", "600"])
    try:
        first = enter("first", queue=False, device=GPU, env=seen)
        wait_until(first.is_training)
        rank = first.record.ranks()[0].pid
        fake_nvml.has([gpu(0, processes=f"{rank}:1024 {program.pid}:1024")])
        on_cpu, second = enter("cpu", env=seen), enter("second", device=GPU, env=seen)
        by_run = f"GPU 0: in use by run {first.id} (first)"
        by_program = f"GPU 0: in use by process {program.pid} (sleep of "
        wait_until(lambda: second.reasons)
        assert second.reasons[0] == by_run
        assert second.reasons[1].startswith(by_program)
        wait_until(
            on_cpu.is_training
        )  # a run on the CPU and a run on a GPU do not block each other
        # when the run has ended
        fake_nvml.has([gpu(0, processes=f"{program.pid}:1024")])
        first.finish()
        wait_until(lambda: by_run not in second.reasons)
        assert second.reasons[0].startswith(by_program)
        # and the program has exited
        fake_nvml.has([gpu(0, processes="")])
        wait_until(second.is_training)
    finally:
        program.kill()
        program.wait()


def test_a_run_that_is_moved_starts_before_those_that_came_first(enter: Enter) -> None:
    one, two, three, four = enter("one"), enter("two"), enter("three"), enter("four")
    wait_until(one.is_training)
    command = [sys.executable, "-m", "distrain", "queue"]
    moved = subprocess.run(
        [*command, "move", "four", "first"], capture_output=True, text=True, check=True
    )
    assert moved.stderr == f"{four.id} is number 1 in the queue\n"
    move(two.id, "down")
    # then everybody sees the new order: four, three, two
    listed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    queue = [(each["place"], each["name"]) for each in json.loads(listed)]
    assert queue == [(None, "one"), (1, "four"), (2, "three"), (3, "two")]
    wait_until(lambda: two.reasons[1:] and "(four) and run" in two.reasons[1])
    wait_until(lambda: len(four.reasons) == 1)
    # and the runs start in it, one at a time
    for before, run in ((one, four), (four, three), (three, two)):
        before.finish()
        wait_until(run.is_training)
    states = [run.record.state for run in (one, four, three, two)]
    assert all(a.ended <= b.started for a, b in itertools.pairwise(states[:-1]))  # type: ignore[operator]
    # a run that has started is not moved
    with pytest.raises(DistrainError, match=f"run {two.id} has started and cannot be moved"):
        move(two.id, "first")
    two.finish()
    wait_until(lambda: two.process.poll() is not None)
    with pytest.raises(DistrainError, match=f"run {two.id} is not in the queue"):
        move(two.id, "first")


def test_ctrl_c_removes_a_run_from_the_queue(enter: Enter, user_folder: Path) -> None:
    one = enter("one")
    wait_until(one.is_training)
    preset = user_folder / "mine.toml"
    preset.write_text(f'strategy = "single"\n[train]\nthreads = {count_cores()}\n')
    distrain = [sys.executable, "-m", "distrain"]
    viewer = subprocess.Popen(
        [*distrain, "run", str(preset), "--queue", "--devices", "cpu:1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert viewer.stderr is not None
        seen = [viewer.stderr.readline(), viewer.stderr.readline()]
        assert "queued" in seen[0]
        assert "waiting     CPU: " in seen[1]
        assert f"in use by run {one.id} (one);" in seen[1]
        # then lists and pages show it
        listed = subprocess.run([*distrain, "runs"], capture_output=True, text=True, check=True)
        assert "queued" in listed.stdout.splitlines()[1]
        assert f"in use by run {one.id} (one);" in listed.stderr
        show = [*distrain, "show", "mine"]
        page = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert "waiting for  CPU: " in page
        # when
        viewer.send_signal(signal.SIGINT)
        out, messages = viewer.communicate(timeout=60)
    finally:
        viewer.kill()
        viewer.wait()
    # then
    assert viewer.returncode == 130
    assert "it leaves the queue and never starts" in messages
    assert json.loads(out)["status"] == "stopped"
