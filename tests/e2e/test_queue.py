"""Given runs that queue for devices that others have: who starts when, and who says why not."""

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
from fake_nvml import FakeNvml, gpu, uuid_of

from runners import Record, Run, RunConfig, launch
from runners.devices import Device
from runners.plan import cores, make_plan
from runners.state import Meta, create_run
from tests.e2e.conftest import QUICK, assert_nothing_left, wait_until

ROOT = Path(__file__).parents[2]
CPU, GPU = Device(kind="cpu", index=0), Device(kind="cuda", index=0, uuid=uuid_of(0))

# A rank without torch, which trains until the test has seen enough.
RANK = """
import os, time
from pathlib import Path
from runners import Reporter
from runners.events import Finished, Phase
with Reporter.from_env() as reporter:
    reporter.say(Phase(time=time.time(), rank=0, phase="training"))
    while not Path(os.environ["DISTRAIN_RUN"], "enough").exists():
        time.sleep(0.02)
    reporter.say(Finished(time=time.time(), rank=0, step=1))
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

    def trains(self) -> bool:
        return any(rank.phase == "training" for rank in self.record.ranks())

    def finish(self) -> dict[str, Any]:
        (self.record.dir / "enough").touch()
        return self.wait(60)


Enter = Callable[..., Entered]


@pytest.fixture(autouse=True)
def queue_of_our_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(place / "queue"))


@pytest.fixture
def enter(place: Path) -> Iterator[Enter]:
    """Start the supervisor of a run that wants all cores (or a GPU); returns once it listens."""
    script = place / "rank.py"
    script.write_text(RANK)
    entered: list[Entered] = []

    def one(
        name: str, *, queue: bool = True, device: Device = CPU, env: dict[str, str] | None = None
    ) -> Entered:
        changes = {"strategy": "single", "train.threads": cores(), "report.sample_s": 0.5}
        config = RunConfig().with_changes(changes)
        folder = create_run(
            place / "runs",
            config,
            plan=make_plan(config, [device]),
            word=name,
            meta=Meta(name=name),
            queue=queue,
        )
        run = Entered(Record(folder))
        helper = str(ROOT / "tests" / "plain_ranks.py")
        run.process = subprocess.Popen(
            [sys.executable, helper, str(folder), str(script)],
            env={**os.environ, **(env or {}), "PYTHONPATH": str(ROOT)},
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
    wait_until(one.trains)
    wait_until(lambda: two.reasons and three.reasons)
    # then each says what it waits for
    assert [run.status for run in (one, two, three)] == ["running", "queued", "queued"]
    (reason,) = two.reasons
    assert reason.startswith(f"CPU: run {one.id} (one) has {cores()} core")
    assert f"this run wants {cores()}, and there " in reason
    assert three.reasons == [*two.reasons, f"CPU: run {two.id} (two) is before it in the queue"]
    # and starts when it is free, not before
    assert one.finish()["status"] == "completed"
    wait_until(two.trains)
    wait_until(lambda: three.reasons != two.reasons and "(two)" in three.reasons[0])
    assert three.status == "queued"
    assert two.reasons == []
    assert two.finish()["status"] == "completed"
    wait_until(three.trains)
    assert three.finish()["status"] == "completed"
    # and its time counts from then on
    states = [run.record.state for run in (one, two, three)]
    assert all(a.ended <= b.started for a, b in itertools.pairwise(states))  # type: ignore[operator]
    assert three.summary()["duration_s"] == states[2].ended - states[2].started  # type: ignore[operator]


def test_a_run_that_does_not_queue_starts_beside_the_others(enter: Enter) -> None:
    one, two = enter("one"), enter("two")
    beside = enter("beside", queue=False)
    wait_until(one.trains)
    wait_until(beside.trains)
    # then those that queue wait for it as well
    wait_until(lambda: "(beside)" in "".join(two.reasons))
    one.finish()
    wait_until(lambda: f"CPU: run {beside.id} (beside) has" in "".join(two.reasons))
    assert two.status == "queued"
    beside.finish()
    wait_until(two.trains)


def test_a_queued_run_that_is_stopped_never_starts(enter: Enter) -> None:
    one, two, three = enter("one"), enter("two"), enter("three")
    two.stop()
    summary = two.wait(30)
    assert summary["status"] == "stopped"
    assert summary["duration_s"] is None
    state = two.record.state
    assert state.reason == "taken out of the queue on request, never started"
    assert (state.started, state.waiting_for, state.socket) == (None, [], "")
    assert not (two.record.dir / "logs" / "launcher.log").exists()
    wait_until(lambda: two.process.poll() is not None)
    # and the next one does not wait for it
    one.finish()
    wait_until(three.trains)


def test_a_supervisor_that_is_killed_leaves_its_devices_to_the_next(enter: Enter) -> None:
    one, two, three = enter("one"), enter("two"), enter("three")
    wait_until(one.trains)
    one.process.kill()
    one.process.wait()
    wait_until(two.trains)
    assert one.status == "failed"
    # so does one that is killed in the queue
    wait_until(lambda: three.reasons)
    four = enter("four")
    wait_until(lambda: "(three)" in "".join(four.reasons))
    three.process.kill()
    three.process.wait()
    assert (three.status, three.reasons) == ("failed", [])
    wait_until(lambda: "(three)" not in "".join(four.reasons))
    two.finish()
    wait_until(four.trains)


def test_a_gpu_is_waited_for_until_run_and_program_have_left_it(
    enter: Enter, fake_nvml: FakeNvml
) -> None:
    seen = {key: fake_nvml.environment[key] for key in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    program = subprocess.Popen(["sleep", "600"])
    try:
        first = enter("first", queue=False, device=GPU, env=seen)
        wait_until(first.trains)
        rank = first.record.ranks()[0].pid
        fake_nvml.has([gpu(0, processes=f"{rank}:1024 {program.pid}:1024")])
        on_cpu, second = enter("cpu", env=seen), enter("second", device=GPU, env=seen)
        has_it = f"GPU 0: run {first.id} (first) has it"
        by_program = f"GPU 0: process {program.pid} (sleep of "
        wait_until(lambda: second.reasons)
        assert second.reasons[0] == has_it
        assert second.reasons[1].startswith(by_program)
        wait_until(on_cpu.trains)  # which is not in the way of one on a GPU, nor it in its way
        # when the run has gone
        fake_nvml.has([gpu(0, processes=f"{program.pid}:1024")])
        first.finish()
        wait_until(lambda: has_it not in second.reasons)
        assert second.reasons[0].startswith(by_program)
        # and the program too
        fake_nvml.has([gpu(0, processes="")])
        wait_until(second.trains)
    finally:
        program.kill()
        program.wait()


def test_ctrl_c_takes_a_run_out_of_the_queue(enter: Enter, place: Path) -> None:
    one = enter("one")
    wait_until(one.trains)
    preset = place / "mine.toml"
    preset.write_text(f'strategy = "single"\n[train]\nthreads = {cores()}\n')
    distrain = [sys.executable, "-m", "runners"]
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
        assert f"waiting     CPU: run {one.id} (one) has" in seen[1]
        # then lists and pages say so
        listed = subprocess.run([*distrain, "runs"], capture_output=True, text=True, check=True)
        assert "queued" in listed.stdout.splitlines()[1]
        assert f"CPU: run {one.id} (one) has" in listed.stderr
        show = [*distrain, "show", "mine"]
        page = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert "waits for  CPU: " in page
        # when
        viewer.send_signal(signal.SIGINT)
        out, told = viewer.communicate(timeout=60)
    finally:
        viewer.kill()
        viewer.wait()
    # then
    assert viewer.returncode == 130
    assert "taking it out of the queue" in told
    assert json.loads(out)["status"] == "stopped"


def test_real_runs_queue_too_and_a_rerun_of_one(place: Path) -> None:
    config = RunConfig().with_changes(
        {**QUICK, "train.epochs": 1, "train.threads": cores(), "strategy": "single"}
        | {"launcher": "inline", "devices": "cpu:1"}
    )
    first = launch(config, name="first", queue=True)
    second = first.rerun(name="second", queue=True)
    assert second.record.status == "queued"
    ended = [run.wait(120) for run in (first, second)]
    assert [summary["status"] for summary in ended] == ["completed", "completed"]
    assert first.record.state.ended <= second.record.state.started  # type: ignore[operator]
    for run in (first, second):
        assert_nothing_left(run)
