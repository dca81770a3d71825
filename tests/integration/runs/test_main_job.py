"""The main job: every built-in preset trains on real images, observed and recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distrain import Record, find
from distrain.runners.protocol.events import HostSample, Notice, Window
from distrain.runners.records.timeseries.series import HOST, PROCS, STEPS
from tests.support import ROOT

SUMMARY = {
    "run_id", "dir", "status", "strategy", "launcher", "precision", "world_size",
        "nodes", "devices",
    "epochs", "steps", "samples", "samples_per_s", "duration_s", "attempts", "steps_again", "eval",
}  # fmt: skip


def distrain(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distrain", *arguments], capture_output=True, text=True, timeout=240
    )


def run_json(*arguments: str) -> dict[str, Any]:
    done = distrain("run", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def windows_of(record: Record, rank: int) -> list[Window]:
    return [STEPS.struct(row) for row in record.raw(STEPS, rank)]


def test_two_process_ddp_on_the_digits_is_observed_recorded_and_evaluated(
    user_folder: Path,
) -> None:
    # when
    summary = run_json("ddp", "--name", "main")
    # then the summary has what scripts rely on
    assert summary.keys() == SUMMARY
    assert summary["status"] == "completed"
    assert (summary["world_size"], summary["devices"]) == (2, ["cpu:0", "cpu:1"])
    assert summary["samples"] == summary["epochs"] * 1437
    assert summary["samples_per_s"] > 0
    assert summary["eval"]["samples"] == 360
    assert summary["eval"]["top1"] >= 0.95
    # and the record holds every rank, phase and process
    record = find("main").record
    for rank in (0, 1):
        rows = windows_of(record, rank)
        assert sum(row.steps for row in rows) == summary["steps"]
        assert all(row.seconds > 0 and row.forward > 0 and row.backward > 0 for row in rows)
    assert isinstance(record.latest(HOST)[0], HostSample)
    assert record.latest(PROCS).keys() == {0, 1}
    # and it states where the figures come from
    shown = json.loads(distrain("show", "main", "--json").stdout)
    assert shown["supervisor_pid"]
    assert [rank["device"] for rank in shown["ranks"]] == ["cpu:0", "cpu:1"]
    assert {rank["step"] for rank in shown["ranks"]} == {summary["steps"]}
    assert shown["provenance"]["versions"]["torch"]
    assert shown["provenance"]["environment"]["OMP_NUM_THREADS"]


@pytest.mark.parametrize("preset", ["single", "allreduce", "ddp-spawn", "amp"])
def test_every_preset_learns_the_digits(preset: str, user_folder: Path) -> None:
    summary = run_json(preset)
    assert summary["status"] == "completed"
    assert summary["eval"]["top1"] >= 0.95


def test_dp_without_gpus_learns_them_and_reports_that_nothing_is_parallel(
    user_folder: Path,
) -> None:
    done = distrain("run", "dp", "--json")
    assert json.loads(done.stdout)["eval"]["top1"] >= 0.95
    assert "nothing is parallel" in done.stderr
    notices = [event.text for event in find("latest").events() if isinstance(event, Notice)]
    assert any("nothing is parallel" in text for text in notices)


def test_exit_codes_distinguish_failures_from_usage_errors(user_folder: Path) -> None:
    short = ("--set", "task.name=faulty:make", "--set", "train.epochs=1")
    broken = distrain("run", "single", *short, "--set", "task.args={what='raise', rank=0, step=3}")
    assert broken.returncode == 1
    assert "the user's own mistake" in broken.stderr
    misused = distrain("run", "single", "--set", "model.args={hiden=3}")
    assert misused.returncode == 2
    assert "did you mean hidden" in misused.stderr
    assert "Traceback" not in misused.stderr
    unwritable = distrain("run", "single", "--runs-dir", "/proc/none")
    assert unwritable.returncode == 2
    assert unwritable.stderr.count("\n") == 1


def test_throughput_excludes_the_first_steps_in_which_torch_compiles(user_folder: Path) -> None:
    summary = run_json("ddp", "--set", "train.compile=true", "--set", "train.epochs=4")
    record = find("latest").record
    rates = []
    for rank in (0, 1):
        rows = windows_of(record, rank)
        assert sum(row.steps for row in rows if row.warmup) == 10
        timed = [row for row in rows if not row.warmup]
        rates.append(sum(row.samples for row in timed) / sum(row.seconds for row in timed))
    assert summary["samples_per_s"] == pytest.approx(sum(rates))


def test_the_example_trains_a_users_own_task(
    monkeypatch: pytest.MonkeyPatch, user_folder: Path
) -> None:
    monkeypatch.chdir(ROOT / "examples" / "regression")
    summary = run_json("regression.toml")
    assert summary["strategy"] == "ddp"
    assert summary["eval"]["mae"] < 60
