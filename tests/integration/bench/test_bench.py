"""Benches of real runs: measured, interrupted, resumed and rerun; no process is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from distrain.runners import bench
from distrain.runners.bench import Bench
from distrain.runners.bench.definition import Definition, Target
from distrain.runners.errors import DistrainError
from distrain.runners.runs import all_runs
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
from distrain.runners.system.host import count_cores
from distrain.runners.system.processes import is_suspended
from tests.support import ROOT
from tests.support.benches import config, definition, make_bench, processes_of
from tests.support.runs import wait_until

TIMEOUT_S = 200.0


@pytest.fixture
def start(started_benches: list[Bench]) -> Callable[..., Bench]:
    def start_bench(made: Definition, **how: object) -> Bench:
        started_benches.append(bench.start(made, **how))
        return started_benches[-1]

    return start_bench


TWO = {"plain": config(), "half": config(precision="bf16")}

# A bench on a disk that is full once its first run was launched; its log is on this disk too.
ON_A_FULL_DISK = """
import contextlib, os
from pathlib import Path
from distrain import all_runs
from distrain.runners.bench import measurement, plans
from distrain.runners.bench.folder import LOG, RUNS, create_bench, read_bench_state
from distrain.runners.bench.rounds import Rounds
from tests.support.benches import config, definition

def launch_and_fill(*words, **options):
    run = launch(*words, **options)
    with contextlib.suppress(OSError), open("disk/rest", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return run

launch, measurement.launch = measurement.launch, launch_and_fill

made = definition({"plain": config(), "half": config(precision="bf16")})
rest = {"name": "", "cwd": "/", "command": [], "queue": False}
rounds = Rounds(create_bench(Path("disk").absolute(), made, plans(made, None), **rest))
os.dup2(os.open(rounds.folder / LOG, os.O_WRONLY | os.O_CREAT), 2)
rounds.begin(queue=False)
rounds.run()
state = read_bench_state(rounds.folder)
print(state.status, state.reason, sep=": ")
print(*(run.status for run in all_runs(rounds.folder / RUNS)))
"""
IN_A_MOUNT_SPACE = ["unshare", "--mount", "--map-root-user", "bash", "-c"]
MOUNTED = "mount -t tmpfs -o size=2m tmpfs disk"


def test_a_full_disk_is_why_a_bench_ended_and_leaves_no_run(user_folder: Path) -> None:
    (user_folder / "disk").mkdir()
    if subprocess.run([*IN_A_MOUNT_SPACE, MOUNTED]).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    command = [*IN_A_MOUNT_SPACE, f'{MOUNTED} && "$0" -c "$1"', sys.executable, ON_A_FULL_DISK]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    reason = "No space left on device; `distrain resume` continues with the next round"
    assert done.stdout == f"failed: {reason}\nstopped\n", done.stderr


def test_a_bench_measures_each_candidate_in_every_round(start: Callable[..., Bench]) -> None:
    measured = start(definition(TWO, repeats=2), name="mine")
    stored, defined = measured.dir / "bench.json", measured.dir / "bench.toml"
    for damage in (stored.unlink, lambda: stored.write_text("{"), defined.unlink):
        wait_until(lambda: measured.current_run, TIMEOUT_S)
        damage()
        assert measured.is_live
        wait_until(lambda: bench.all_benches(), TIMEOUT_S)
    found = measured.wait()
    state = measured.state
    assert (state.status, state.reason) == ("completed", "completed all 2 rounds")
    assert {(each.round, each.candidate) for each in state.measurements} == {
        (number, name) for number in (1, 2) for name in TWO
    }
    for each in state.measurements:
        assert each.seconds >= 0.3
        assert each.rate > 0
        assert sum(each.phases.values()) == pytest.approx(1, abs=0.01)
        assert each.host_memory is not None
    assert found.candidates[1].ratio is not None
    assert found.candidates[0].folders == [
        str(measured.dir / "runs" / each.run_id)
        for each in sorted(state.measurements, key=lambda each: each.round)
        if each.candidate == "plain"
    ]
    # Its runs are records like any other, but are not listed among the runs.
    assert {run.record.status for run in all_runs(measured.dir / "runs")} == {"stopped"}
    assert all_runs(measured.dir.parent) == []
    assert {run.record.runs_dir for run in all_runs(measured.records_dir)} == {measured.dir.parent}
    wait_until(lambda: not processes_of(measured), TIMEOUT_S)


def test_a_stopped_bench_resumes_with_the_interrupted_round(
    start: Callable[..., Bench],
) -> None:
    """While it runs, a second process of it is refused."""
    measured = start(definition(TWO, repeats=2))
    second = subprocess.run(
        [sys.executable, "-P", "-m", "distrain.runners.bench.rounds", str(measured.dir)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert second.returncode == 1
    assert "another process runs this bench" in (measured.dir / "bench.log").read_text()
    wait_until(lambda: measured.state.rounds == 1 or not measured.is_live, TIMEOUT_S)
    wait_until(lambda: measured.current_run or not measured.is_live, TIMEOUT_S)
    measured.stop()
    wait_until(lambda: not measured.is_live, TIMEOUT_S)
    assert measured.state.status == "stopped"
    wait_until(lambda: not processes_of(measured), TIMEOUT_S)
    before, origin = measured.state.measurements[:2], measured.state.provenance
    was = origin["versions"]["torch"]
    rewritten = (measured.dir / "bench.json").read_text().replace(was, "1.0.0")
    (measured.dir / "bench.json").write_text(rewritten)
    measured.resume().wait()
    state = measured.state
    # The provenance of the first rounds stays, and what has changed since is a warning.
    assert state.provenance["versions"]["torch"] == "1.0.0"
    assert any(f"torch was 1.0.0 and is {was}" in text for text in state.warnings)
    assert state.status == "completed"
    assert state.measurements[:2] == before
    assert [each.round for each in state.measurements] == [1, 1, 2, 2]
    assert len(state.started) == 2
    with pytest.raises(DistrainError, match="has completed all its rounds"):
        measured.resume()


def test_a_bench_whose_working_folder_is_gone_cannot_be_rerun(user_folder: Path) -> None:
    with pytest.raises(DistrainError, match="no longer exists"):
        make_bench(user_folder / "runs", cwd=str(user_folder / "gone")).rerun()


def test_a_killed_bench_leaves_no_run(start: Callable[..., Bench]) -> None:
    measured = start(definition(TWO, seconds=600.0))
    wait_until(
        lambda: measured.current_run and measured.current_run.record.status == "running", TIMEOUT_S
    )
    assert measured.state.pid is not None
    os.kill(measured.state.pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(measured), TIMEOUT_S)
    assert measured.state.status == "failed"
    assert "is gone" in measured.state.reason


def test_a_bench_in_the_queue_tells_that_it_is_suspended_and_leaves_no_run_when_killed(
    start: Callable[..., Bench],
) -> None:
    other = QueueEntry(run_id="other", dir="/other", cores=count_cores())
    with DeviceLease(other):
        measured = start(definition(TWO), queue=True)
        wait_until(
            lambda: measured.current_run and measured.current_run.status == "queued", TIMEOUT_S
        )
        run = measured.current_run
        assert run is not None
        pids = [measured.state.pid, run.record.state.supervisor_pid]
        for pid in pids:
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            wait_until(partial(is_suspended, pid), TIMEOUT_S)
        assert measured.reason.endswith(f"is suspended; `kill -CONT {pids[0]}` continues it")
        with pytest.raises(DistrainError, match="`kill -CONT {} {}` lets it stop".format(*pids)):
            measured.stop()
        os.kill(pids[0], signal.SIGKILL)
        os.kill(pids[1], signal.SIGCONT)
        wait_until(lambda: not processes_of(measured), TIMEOUT_S)


def test_a_failed_candidate_is_excluded_and_the_others_continue(
    start: Callable[..., Bench], user_folder: Path
) -> None:
    (user_folder / "broken.py").write_text("def net():\n    raise RuntimeError('no such layer')\n")
    broken = config(model__name="broken:net")
    measured = start(definition({"plain": config(), "broken": broken}, unequal=True))
    found = measured.wait()
    assert measured.state.status == "completed"
    assert "no such layer" in found.candidates[1].problem
    assert len(found.candidates[0].rates) == 2


def test_a_bench_trains_to_a_target(start: Callable[..., Bench]) -> None:
    made = definition({"plain": config(train__epochs=30)}, repeats=2)
    with_target = Definition(
        rules=made.rules, configs=made.configs, target=Target(metric="top1", value=0.8)
    )
    found = start(with_target).wait()
    reached = found.candidates[0]
    assert reached.seconds_to_target is not None
    assert reached.metrics["top1"] is not None
    assert reached.metrics["top1"] >= 0.8


def test_a_target_whose_metric_is_not_evaluated_fails_at_the_first_evaluation(
    start: Callable[..., Bench],
) -> None:
    made = definition({"plain": config(train__epochs=10_000)}, repeats=2)
    wanted = Definition(
        rules=made.rules, configs=made.configs, target=Target(metric="f1", value=0.8)
    )
    found = start(wanted).wait()
    assert (
        "the target's metric 'f1' is not evaluated; use top1, top5, loss"
        in found.candidates[0].problem
    )


def test_a_folder_with_inconsistent_files_is_not_a_bench(user_folder: Path) -> None:
    measured = make_bench(user_folder / "runs")
    path = measured.dir / "bench.json"
    state = path.read_text()
    for key, value, problem in (("plans", {}, "different candidates"), ("rounds", -5, ">= 0")):
        path.write_text(json.dumps({**json.loads(state), key: value}))
        with pytest.raises(DistrainError, match=problem):
            Bench(measured.dir)
    path.write_text(state)
    path = measured.dir / "bench.toml"
    path.write_text(path.read_text().replace("[candidates.ddp", "[candidates.other"))
    with pytest.raises(DistrainError, match="have different candidates"):
        Bench(measured.dir)
    assert bench.all_benches(measured.dir.parent) == []


def loading(strategy: str, ranks: int, workers: int) -> object:
    """Return a config that is limited by loading images."""
    return config(
        strategy=strategy,
        launcher="spawn" if ranks > 1 else "inline",
        devices=f"cpu:{ranks}",
        train__threads=2 // ranks,
        train__batch_size=16,
        data__name="slow_images:images",
        data__workers=workers,
    )


def test_more_loader_workers_win_and_are_marked_unequal(start: Callable[..., Bench]) -> None:
    """With as many of them two ranks are not faster than one."""
    loaders = {
        "dp": loading("dp", 1, 2),
        "equal": loading("ddp", 2, 2),
        "more": loading("ddp", 2, 4),
    }
    found = start(definition(loaders, unequal=True, seconds=2.0)).wait()
    (workers,) = found.unequal
    assert (workers.key, workers.values) == ("data.workers", ["2", "2", "4"])
    dp, equal, more = found.candidates
    assert "input-bound" in dp.diagnosis
    assert equal.ratio is not None
    assert equal.ratio.value == pytest.approx(1, abs=0.2)
    assert more.ratio is not None
    assert more.ratio.value > 1.5


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distrain", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_a_bench_from_the_command_line(user_folder: Path) -> None:
    """Bench two candidates, then use other commands on the bench."""
    quick = ("--set", "train.threads=1", "--set", "devices=cpu:1")
    done = command(
        "bench", "single", "single,precision=bf16", *quick, "--repeats=1", "--seconds=0.3"
    )
    assert done.returncode == 2
    assert "bench.repeats: must be a whole number ≥ 2" in done.stderr
    done = command(
        *("bench", "single", "single,precision=bf16", *quick),
        *("--repeats=2", "--seconds=0.3", "--name=mine", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert "equal: " in done.stderr
    lines = [line.split() for line in done.stderr.splitlines()]
    assert ["differs", "precision"] in lines
    assert ["single,precision=bf16", "bf16"] in lines
    assert "2 rounds of 2 runs, which cannot give a result" in done.stderr
    found = json.loads(done.stdout)
    assert [len(each["rates"]) for each in found["candidates"]] == [2, 2]
    (listed,) = json.loads(command("runs", "--json").stdout)
    assert (listed["kind"], listed["name"], listed["rounds"]) == ("bench", "mine", 2)
    assert command("watch", "mine").returncode == 0
    assert "2 of at most 2" in command("show", "mine").stdout
    saved = f"{listed['dir']}/bench.toml"
    refused = command("bench", saved, "--set", "data.nothing=1")
    assert "data.nothing: unknown key" in refused.stderr
    refused = command("resume", "mine")
    assert refused.returncode == 1
    assert "has completed all its rounds" in refused.stderr
    assert command("rm", "mine").returncode == 0
    assert command("runs").stdout == ""
    assert command("rm", "--undo", "mine").returncode == 0
    assert "mine" in command("runs").stdout
    Path(listed["dir"], "bench.json").write_text("{")
    broken = command("runs")
    assert broken.returncode == 0
    assert "its bench.json is broken" in broken.stderr
