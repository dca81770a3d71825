"""Records of an older version: shown, compared, exported and resumed by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain
from tests.support.older import COMPLETED, WITH_JOURNAL, copy_records


@pytest.fixture(autouse=True)
def older_records(runs_dir: Path) -> None:
    copy_records(runs_dir)


def test_they_are_listed_and_shown(distrain: Distrain) -> None:
    listed = json.loads(distrain("runs", "--json").stdout)
    assert {run["run_id"] for run in listed} == {COMPLETED, WITH_JOURNAL}
    shown = json.loads(distrain("show", COMPLETED, "--json").stdout)
    assert (shown["steps"], shown["eval"]["top1"]) == (8, 0.484375)
    failed = json.loads(distrain("show", WITH_JOURNAL, "--json").stdout)
    assert failed["error"]["collateral"] == [0]


def test_they_are_compared(distrain: Distrain) -> None:
    compared = json.loads(distrain("compare", COMPLETED, WITH_JOURNAL, "--json").stdout)
    assert [each["name"] for each in compared["candidates"]] == ["before", "journal before"]


@pytest.mark.parametrize("to", ["csv", "jsonl", "tensorboard"])
def test_they_are_exported(to: str, distrain: Distrain, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert distrain("export", COMPLETED, "--to", to, "--out", str(out)).returncode == 0
    assert out.exists()


def test_a_run_is_resumed_from_its_checkpoint(distrain: Distrain) -> None:
    resumed = distrain(
        "resume", COMPLETED, "--set", "train.epochs=3", "--set", "launcher=spawn", "--json"
    )
    assert resumed.returncode == 0, resumed.stderr
    summary = json.loads(resumed.stdout)
    assert (summary["status"], summary["epochs"], summary["steps"]) == ("completed", 3, 12)
    assert summary["samples"] == 256
