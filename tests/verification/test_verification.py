"""Verification passes what is right, and names what is wrong; all in real runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.errors import ConfigError
from runners.presets import user_folder
from runners.verification.cases import verify
from runners.verification.report import Report

Verify = Callable[..., Report]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with strategies of their own in it."""
    shutil.copy(Path(__file__).with_name("planted.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))
    return tmp_path


def verified(preset: str = "ddp", **changes: Any) -> Report:
    """The report on a preset with dotted keys changed (`__` for the dot), on two CPU processes."""
    quick = {"devices": "cpu:2", "train.threads": 1, "launcher": "spawn"}
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    (report,) = verify([preset], changes={**quick, **dotted})
    assert not report.problem, report.problem
    return report


def failure(**changes: Any) -> tuple[str, int, str]:
    """What differs first, when, and in which tensor."""
    report = verified(**changes)
    assert not report.passed
    first = report.first
    assert first is not None
    return first.what, first.step, first.tensor


# --- what is right passes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "allreduce", "devices": "cpu:3", "train__accumulate": 2},
        {"train__momentum": 0.9, "train__clip_norm": 0.1, "train__weight_decay": 0.01},
        {"train__optimizer": "adam", "train__accumulate": 2, "precision": "bf16"},
        {"precision": "fp16"},
    ],
)
def test_what_is_right_passes(changes: dict[str, Any]) -> None:
    report = verified(**changes)
    assert report.passed, report.first
    assert report.declared == []
    assert {check.step for check in report.checks} == {0, 1, 2, 3}
    assert report.world_size >= 2


def test_batchnorm_is_declared_and_compared_part_by_part() -> None:
    report = verified(model__name="resnet18", data__args={"channels": 3}, train__accumulate=2)
    assert report.passed, report.first
    assert "BatchNorm" in report.declared[0]
    assert "buffers" in {check.what for check in report.checks}


def test_dropout_is_declared_and_drawn_as_the_ranks_drew_it() -> None:
    report = verified(model__args={"dropout": 0.3})
    assert report.passed, report.first
    assert "dropout" in report.declared[0]


def test_what_is_lossy_on_purpose_is_declared() -> None:
    report = verified(ddp__comm_hook="fp16_compress")
    assert report.passed, report.first
    assert "fp16_compress" in report.declared[0]


def test_the_strategy_of_the_docs_passes(place: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your-own-task.md").read_text()
    found = re.search(r"```python\n# hand\.py\n(.*?)```", page, re.DOTALL)
    assert found
    (place / "hand.py").write_text(found[1])
    assert verified(strategy="hand:ByHand").passed


# --- what is wrong is named -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "found"),
    [
        ("NothingAveraged", ("gradients", 1)),
        ("ResultDiscarded", ("gradients", 1)),
        ("Summed", ("gradients", 1)),
        ("Unweighted", ("gradients", 2)),
        ("NotBroadcast", ("initial weights", 0)),
        ("AnotherSeed", ("initial weights", 0)),
        ("AroundTheWrapper", ("gradients", 1)),
        ("OneBucketInHalf", ("gradients", 1)),
    ],
)
def test_a_bug_is_named_with_the_first_tensor_that_differs(
    strategy: str, found: tuple[str, int]
) -> None:
    what, step, tensor = failure(strategy=f"planted:{strategy}")
    assert (what, step) == found
    assert tensor == "1.weight"


def test_accumulation_that_is_scaled_twice_is_found() -> None:
    found = failure(strategy="planted:ScaledTwice", train__accumulate=2)
    assert found == ("gradients", 1, "1.weight")


def test_a_loss_scale_that_is_undone_twice_is_found() -> None:
    found = failure(strategy="planted:UnscaledTwice", precision="fp16")
    assert found == ("gradients", 1, "1.weight")


# --- what cannot be verified ----------------------------------------------------------------------


def test_a_strategy_that_is_none_is_one_sentence() -> None:
    quick = {"devices": "cpu:2", "train.threads": 1, "launcher": "spawn"}
    (report,) = verify(["ddp"], changes={**quick, "strategy": "planted:NoStrategy"})
    assert not report.passed
    assert "gave a NoStrategy, not a runners.strategies.Strategy" in report.problem


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("planted:Nope", "defines no 'Nope'"),
        ("nowhere:Nope", "no module 'nowhere'"),
        ("ddpp", "did you mean ddp"),
    ],
)
def test_a_strategy_that_is_not_there_is_refused_before_anything_starts(
    strategy: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        list(verify(["ddp"], changes={"strategy": strategy}))


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_its_exit_code_is_the_verdict(place: Path) -> None:
    def distrain(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "runners", "verify", *words]
        return subprocess.run(command, capture_output=True, text=True)

    user_folder().mkdir(parents=True)
    (user_folder() / "wrong.toml").write_text(
        'strategy = "planted:Summed"\nlauncher = "spawn"\n[train]\nthreads = 1\n'
    )
    done = distrain("single", "wrong", "--ranks", "2")
    assert done.returncode == 1, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["preset", "single", "wrong"]
    assert done.stdout.splitlines()[1].endswith("the same")
    assert "wrong on 2 ranks: gradients differ at step 1: 1.weight by 1 of its size" in done.stderr
    assert "differ in rounding alone, measured for each tensor" in done.stderr
    done = distrain("single", "--json")
    assert done.returncode == 0
    (report,) = json.loads(done.stdout)
    assert (report["preset"], report["passed"], report["first"]) == ("single", True, None)
    assert not list(place.glob("runs"))
