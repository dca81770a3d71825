"""Sweeps of real runs: queued as a group, followed, stopped, and with a run that fails."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrain import ConfigError, DistrainError, Run, RunConfig, all_runs, launch_sweep
from distrain.runners.checks import check
from distrain.runners.config.sweep import Axis, combine
from distrain.runners.groups import Group, find_group, launch_group
from tests.integration.runs.conftest import QUICK
from tests.support.runs import assert_nothing_left, wait_until

DISTRAIN = (sys.executable, "-m", "distrain")
CHANGES = {**QUICK, "strategy": "single", "launcher": "inline", "devices": "cpu:1"}
SCRIPT = """
import sys, distrain
rate = float(sys.argv[-1].partition("=")[2])
distrain.log_eval({"top1": rate}, samples=10)
sys.exit("too high" if rate > 0.5 else 0)
"""


@pytest.fixture(autouse=True)
def own_queue(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(user_folder / "queue"))


def test_a_sweep_and_a_rerun_are_one_group_and_end_one_after_another(
    user_folder: Path,
) -> None:
    config = RunConfig().with_changes({**CHANGES, "train.epochs": 1, "train.threads": 1000})
    group = launch_sweep(config, {"train.lr": [0.1, 0.05]}, name="rates")
    assert [run.name for run in group.runs] == ["lr-0.1", "lr-0.05"]
    # the group is found by its name, and lists know it
    found = find_group("rates")
    assert (found.id, len(found.runs)) == (group.id, 2)
    assert "-rates-" in group.id
    # and a rerun of one of them belongs to it too, and queues
    again = group.runs[0].rerun(queue=True)
    assert (again.name, again.status) == ("lr-0.1-2", "queued")
    group = find_group("rates")
    assert len(group.runs) == 3
    for run in group.runs:
        assert run.wait(120)["status"] == "completed"
        assert_nothing_left(run)
    states = [run.record.state for run in group.runs]
    assert all(a.ended <= b.started for a, b in itertools.pairwise(states))  # type: ignore[operator]
    assert (group.status, group.reason) == ("completed", "3 of 3 runs completed")


def test_a_sweep_with_an_invalid_run_starts_none(user_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.lr: .*\(in lr-.1\)"):
        launch_sweep(RunConfig().with_changes(CHANGES), {"train.lr": [0.1, -1]})
    assert all_runs() == []


def test_stopping_a_group_ends_its_run_and_empties_the_queue(user_folder: Path) -> None:
    config = RunConfig().with_changes({**CHANGES, "train.epochs": 10_000, "train.threads": 1000})
    group = launch_sweep(config, {"train.lr": [0.1, 0.05]})
    wait_until(lambda: group.runs[0].record.latest())
    done = subprocess.run(
        [*DISTRAIN, "stop", group.name, "--wait"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [run.status for run in group.runs] == ["stopped"] * 2
    assert [run.record.state.started is None for run in group.runs] == [False, True]
    for run in group.runs:
        assert_nothing_left(run)


def test_stopping_a_group_that_is_being_launched_ends_the_launch_too(user_folder: Path) -> None:
    config = RunConfig().with_changes({**CHANGES, "train.epochs": 10_000, "train.threads": 1000})
    planned = combine(config, [Axis.of("train.lr", [0.1, 0.05, 0.01])], check)
    found: list[Group] = []

    def stop_after_second(run: Run) -> None:
        if found:
            found[0].stop()
        else:
            found.append(find_group("rates"))

    with pytest.raises(DistrainError, match=r"was stopped after 2 of 3 runs had been launched$"):
        launch_group(planned, "rates", on_launched=stop_after_second)
    assert [run.name for run in found[0].runs] == ["lr-0.1", "lr-0.05"]
    for run in all_runs():
        assert run.wait(120)["status"] == "stopped"
    assert len(all_runs()) == 2


def test_a_followed_sweep_ends_with_a_table_although_one_run_fails(user_folder: Path) -> None:
    (user_folder / "train.py").write_text(SCRIPT)
    words = [*DISTRAIN, "run", "--sweep", "--rate=0.25,0.75,0.5", "train.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][0] == "failed"
    assert [line[:4] for line in lines[2:5]] == [
        ["rate-0.25", "--rate=0.25", "completed", "25.00"],
        ["*", "rate-0.75", "--rate=0.75", "failed"],
        ["rate-0.5", "--rate=0.5", "completed", "50.00"],
    ]
    assert "best of 3: rate-0.75, top1 75.00 %" in done.stdout
    assert "n = 1" in done.stdout
    assert "rate-0.75: rank 0" in done.stderr


def test_a_detached_sweep_prints_its_ids_although_nobody_reads_its_messages(
    user_folder: Path,
) -> None:
    preset = user_folder / "mine.toml"
    preset.write_text('strategy = "single"\nlauncher = "inline"\ndevices = "cpu:1"\n')
    words = [*DISTRAIN, "run", str(preset), "--sweep", "train.lr=0.1,0.05", "--set"]
    words += ["train.epochs=1", "--detach", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=writer, text=True, check=True)
    os.close(writer)
    started = json.loads(done.stdout)
    group = find_group(started["group_id"])
    assert [run.id for run in group.runs] == [each["run_id"] for each in started["runs"]]
    for run in group.runs:
        run.wait(120)
    listed = [*DISTRAIN, "runs", "--group", "mine-sweep", "--json"]
    rows = json.loads(subprocess.run(listed, capture_output=True, text=True, check=True).stdout)
    assert {row["group"] for row in rows} == {group.id}
    shown = [*DISTRAIN, "show", "mine-sweep", "--json"]
    page = json.loads(subprocess.run(shown, capture_output=True, text=True, check=True).stdout)
    assert [run["settings"] for run in page["runs"]] == [{"train.lr": "0.1"}, {"train.lr": "0.05"}]
    assert page["metric"] == "top1"
    assert set(page["best"]) <= {run.id for run in group.runs}
