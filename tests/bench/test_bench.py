"""Benches of real runs: measured, interrupted, resumed, run again, and gone with nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benched import config, definition, processes_of

from runners import bench
from runners.bench import Bench
from runners.bench.definition import Definition, Target
from runners.errors import DistrainError
from runners.runs import all_runs

PATIENCE_S = 200.0


def until(true: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def start(begun: list[Bench]) -> Callable[..., Bench]:
    def start_one(made: Definition, **how: object) -> Bench:
        begun.append(bench.start(made, **how))
        return begun[-1]

    return start_one


TWO = {"plain": config(), "half": config(precision="bf16")}


def test_a_bench_measures_each_contestant_in_every_round(start: Callable[..., Bench]) -> None:
    one = start(definition(TWO, repeats=2), name="mine")
    found = one.wait()
    state = one.state
    assert (state.status, state.reason) == ("completed", "all 2 rounds were done")
    assert {(each.round, each.contestant) for each in state.measurements} == {
        (number, name) for number in (1, 2) for name in TWO
    }
    for each in state.measurements:
        assert each.seconds >= 0.3
        assert each.rate > 0
        assert sum(each.phases.values()) == pytest.approx(1, abs=0.01)
        assert each.host_memory is not None
    assert found.contestants[1].ratio is not None
    assert found.contestants[0].folders == [
        str(one.dir / "runs" / each.run_id)
        for each in sorted(state.measurements, key=lambda each: each.round)
        if each.contestant == "plain"
    ]
    # Its runs are records like any other, and are in nobody's list of runs.
    assert {run.record.status for run in all_runs(one.dir / "runs")} == {"stopped"}
    assert all_runs(one.dir.parent) == []
    assert {run.record.runs_dir for run in all_runs(one.runs_dir)} == {one.dir.parent}
    until(lambda: not processes_of(one), "nothing being left of it")


def test_a_bench_that_is_stopped_goes_on_with_the_round_that_it_was_in(
    start: Callable[..., Bench],
) -> None:
    one = start(definition(TWO, repeats=2))
    until(lambda: one.state.rounds == 1 or not one.is_live, "the first round")
    until(lambda: one.current or not one.is_live, "a run of the second")
    one.stop()
    until(lambda: not one.is_live, "its end")
    assert one.state.status == "stopped"
    until(lambda: not processes_of(one), "nothing being left of it")
    before, origin = one.state.measurements[:2], one.state.provenance
    was = origin["versions"]["torch"]
    rewritten = (one.dir / "bench.json").read_text().replace(was, "1.0.0")
    (one.dir / "bench.json").write_text(rewritten)
    one.resume().wait()
    state = one.state
    # Where the first rounds come from stays, and what has changed since is told.
    assert state.provenance["versions"]["torch"] == "1.0.0"
    assert any(f"torch was 1.0.0 and is {was}" in text for text in state.warnings)
    assert state.status == "completed"
    assert state.measurements[:2] == before
    assert [each.round for each in state.measurements] == [1, 1, 2, 2]
    assert len(state.started) == 2
    with pytest.raises(DistrainError, match="has done all its rounds"):
        one.resume()


def test_a_bench_is_done_by_one_process(start: Callable[..., Bench]) -> None:
    """A second one is turned away; once the end is seen, it may be resumed at once."""
    one = start(definition({"plain": config()}, repeats=3))
    second = subprocess.run(
        [sys.executable, "-P", "-m", "runners.bench.rounds", str(one.dir)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert second.returncode == 1
    assert "another process does this bench" in (one.dir / "bench.log").read_text()
    until(lambda: one.state.rounds, "a round")
    one.stop()
    until(lambda: not one.is_live, "its end")
    until(lambda: not processes_of(one), "nothing being left of it")
    assert one.resume().wait().contestants[0].rates
    assert one.state.rounds == 3


def test_a_bench_whose_folder_is_gone_says_so(start: Callable[..., Bench], place: Path) -> None:
    there = place / "there"
    there.mkdir()
    one = start(definition({"plain": config()}), cwd=str(there))
    one.wait()
    there.rmdir()
    with pytest.raises(DistrainError, match="was begun in is gone"):
        one.rerun()


def test_a_bench_that_is_killed_leaves_no_run_behind(start: Callable[..., Bench]) -> None:
    one = start(definition(TWO, seconds=600.0))
    until(lambda: one.current and one.current.record.status == "running", "a run")
    assert one.state.pid is not None
    os.kill(one.state.pid, signal.SIGKILL)
    until(lambda: not processes_of(one), "the end of its run")
    assert one.state.status == "failed"
    assert "is gone" in one.state.reason


def test_a_contestant_that_fails_is_out_and_the_others_go_on(
    start: Callable[..., Bench], place: Path
) -> None:
    (place / "broken.py").write_text("def net():\n    raise RuntimeError('no such layer')\n")
    broken = config(model__name="broken:net")
    one = start(definition({"plain": config(), "broken": broken}, unequal=True))
    found = one.wait()
    assert one.state.status == "completed"
    assert "no such layer" in found.contestants[1].problem
    assert len(found.contestants[0].rates) == 2


def test_a_target_is_trained_for(start: Callable[..., Bench]) -> None:
    made = definition({"plain": config(train__epochs=30)}, repeats=2)
    with_target = Definition(
        rules=made.rules, configs=made.configs, target=Target(metric="top1", value=0.8)
    )
    found = start(with_target).wait()
    reached = found.contestants[0]
    assert reached.seconds_to_target is not None
    assert reached.metrics["top1"] is not None
    assert reached.metrics["top1"] >= 0.8


def test_a_target_of_what_is_not_evaluated_ends_at_the_first_evaluation(
    start: Callable[..., Bench],
) -> None:
    made = definition({"plain": config(train__epochs=10_000)}, repeats=2)
    wanted = Definition(
        rules=made.rules, configs=made.configs, target=Target(metric="f1", value=0.8)
    )
    found = start(wanted).wait()
    assert "no 'f1' is evaluated; there is top1, top5, loss" in found.contestants[0].problem


def test_a_folder_whose_files_do_not_fit_each_other_is_no_bench(
    start: Callable[..., Bench], place: Path
) -> None:
    one = start(definition({"plain": config()}, repeats=2))
    one.wait()
    there = one.dir / "bench.toml"
    there.write_text(there.read_text().replace("[contestants.plain", "[contestants.other"))
    with pytest.raises(DistrainError, match="have other contestants"):
        Bench(one.dir)
    assert bench.all_benches(one.dir.parent) == []


def loading(strategy: str, ranks: int, workers: int) -> object:
    """Training that waits for its images."""
    return config(
        strategy=strategy,
        launcher="spawn" if ranks > 1 else "inline",
        devices=f"cpu:{ranks}",
        train__threads=2 // ranks,
        train__batch_size=16,
        data__name="slow_images:images",
        data__workers=workers,
    )


def test_more_loader_workers_win_and_are_called_unequal(start: Callable[..., Bench]) -> None:
    """As in charts where one had 2 loader workers and the other 2 for each rank."""
    made = definition(
        {"dp": loading("dp", 1, 2), "ddp": loading("ddp", 2, 4)}, unequal=True, seconds=2.0
    )
    found = start(made).wait()
    assert [(each.key, each.values) for each in found.unequal] == [("data.workers", ["2", "4"])]
    dp, ddp = found.contestants
    assert "input-bound" in dp.diagnosis
    assert ddp.ratio is not None
    assert ddp.ratio.value > 1.5


def test_with_equal_loader_workers_the_difference_goes(start: Callable[..., Bench]) -> None:
    made = definition({"dp": loading("dp", 1, 2), "ddp": loading("ddp", 2, 2)}, seconds=2.0)
    found = start(made).wait()
    assert not found.unequal
    assert found.contestants[1].ratio is not None
    assert found.contestants[1].ratio.value == pytest.approx(1, abs=0.2)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runners", *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_bench_from_the_command_line(place: Path) -> None:
    """One of two presets; then what the other commands say of it."""
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
    assert "differs: precision: single fp32, single,precision=bf16 bf16" in done.stderr
    assert "2 rounds of 2 runs" in done.stderr
    found = json.loads(done.stdout)
    assert [len(each["rates"]) for each in found["contestants"]] == [2, 2]
    (listed,) = json.loads(command("runs", "--json").stdout)
    assert (listed["kind"], listed["name"], listed["rounds"]) == ("bench", "mine", 2)
    assert command("watch", "mine").returncode == 0
    assert "2 of at most 2" in command("show", "mine").stdout
    saved = f"{listed['dir']}/bench.toml"
    refused = command("bench", saved, "--set", "data.nothing=1")
    assert "data.nothing: unknown key" in refused.stderr
    refused = command("resume", "mine")
    assert refused.returncode == 1
    assert "has done all its rounds" in refused.stderr
    assert command("rm", "mine").returncode == 0
    assert command("runs").stdout == ""
    assert command("rm", "--undo", "mine").returncode == 0
    assert "mine" in command("runs").stdout
    Path(listed["dir"], "bench.json").write_text("{")
    broken = command("runs")
    assert broken.returncode == 0
    assert "its bench.json is broken" in broken.stderr
