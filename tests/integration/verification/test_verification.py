"""Verification passes correct strategies, and names the first tensor that a bug makes differ.

The cases of one test share two rank processes; the comparison runs in the test process. Launched
runs, the comparing process and the command have tests of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.verification import draw_changes
from distrain.models.importing import make_importable, user_folders
from distrain.runners.config.presets import load_preset, user_folder
from distrain.runners.errors import ConfigError
from distrain.runners.verification.cases import make_cases, verify
from distrain.runners.verification.result import VerificationResult
from tests.integration.verification.bugs import BUGS, LATE, TASKS, changes_of
from tests.integration.verification.in_process import verify_in_process
from tests.support import ROOT

STEPS = [1, 2, 3, 5]
QUICK = {"devices": "cpu:2", "train.threads": 1, "launcher": "spawn"}
UNUSED = {"ddp.find_unused_parameters": True, "train.weight_decay": 0.1}
RIGHT: dict[str, dict[str, Any]] = {
    "momentum": {"train.momentum": 0.9, "train.clip_norm": 0.1, "train.weight_decay": 0.01},
    "adam": {"train.optimizer": "adam", "train.accumulate": 2, "precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "small rate": {"train.optimizer": "adamw", "train.lr": 1e-6, "train.accumulate": 2},
    "weights": {"task.name": "planted_late:Weighted", "train.accumulate": 3},
    "average": {"train.ema": 0.5, "strategy": "allreduce"},
    "equal average": {"train.swa_share": 0.8, "train.swa_every_steps": 2, "precision": "fp16"},
    "average in fp16": {"train.ema": 0.5, "precision": "fp16", "train.accumulate": 2},
    "metric states": {"task.name": "planted_late:Scored"},
    "overflow": {"precision": "fp16", "train.optimizer": "adamw"},
    "dampening": {"train.optimizer_args": {"dampening": 0.3}, "train.momentum": 0.9},
    "unused": {"model.name": "planted_late:routed", **UNUSED},
    "unused, zeros that move nothing": {
        "model.name": "planted_late:routed",
        "strategy": "planted_late:ZerosForUnused",
        "train.momentum": 0.0,
        "train.weight_decay": 0.0,
    },
    "unused, with adam": {
        "model.name": "planted_late:routed",
        "strategy": "allreduce",
        "train.optimizer": "adam",
        "train.accumulate": 2,
    },
    "complex weights": {"model.name": "planted_late:complex_weights", "train.momentum": 0.9},
    "sparse gradients": {
        "model.name": "planted_late:sparse_gradients",
        "train.optimizer": "torch.optim:SGD",
    },
    "frozen BatchNorm": {"model.name": "planted_late:frozen", "train.accumulate": 2},
    "gradients of inputs": {"task.name": "planted_late:Adversarial"},
    "teacher": {"model.name": "planted_late:taught", "train.accumulate": 2},
    "numbers in groups": {"train.optimizer": "planted_late:Counting", "train.lr": 0.1},
    "lists in states": {"train.optimizer": "planted_late:Whitened", "train.lr": 0.01},
}
DECLARED: dict[str, dict[str, Any]] = {
    "BatchNorm": {
        "model.name": "planted_late:normed",
        "train.accumulate": 2,
        "train.optimizer": "adam",
        "train.lr": 1e-4,
        "train.ema": 0.5,  # of its running statistics, too
    },
    "dropout": {"model.args": {"dropout": 0.3}},
    "random numbers in training": {"task.name": "planted_late:Blended"},
    "samples differ from read to read": {"task.name": "planted_late:Augmented"},
    "training samples differ": {"task.name": "planted_late:Mixing"},
    "schedule depends on more": {"task.name": "planted_late:Plateau"},
    "state that is no buffer": {"task.name": "planted_late:Annealed"},
    "statistics that move in evaluation": {"model.name": "planted_late:observed"},
    "random numbers in evaluation": {"task.name": "planted_late:RandomInEvaluation"},
    "fp16_compress": {"ddp.comm_hook": "fp16_compress"},
    "powerSGD": {"ddp.comm_hook": "powerSGD", "ddp.powersgd_start": 2, "train.accumulate": 2},
}
QUEUED = {
    strategy: {"model.name": "planted_late:queued", "strategy": strategy, "train.accumulate": 2}
    for strategy in ("ddp", "allreduce", "planted:NotZeroed", "planted:Noise")
}
RANDOM = {  # of the configs that benchmarks.verification draws, those of two ranks
    f"seed {seed}": changes
    for seed, (ranks, changes) in ((seed, draw_changes(Random(seed))) for seed in range(12))
    if ranks == 2
}
SAMPLE = [  # of the bugs; benchmarks.verification tries all of them
    *("NothingAveraged", "ResultDiscarded", "Summed", "Unweighted", "NotBroadcast", "AnotherSeed"),
    *("AroundTheWrapper", "OneBucketInHalf", "ScaledTwice", "UnscaledTwice", "OneElement", "Noise"),
    *LATE,
    *TASKS,
]


@pytest.fixture(scope="module", autouse=True)
def user_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with the strategies of `planted.py`, as the current directory."""
    folder = tmp_path_factory.mktemp("verification")
    for name in ("planted.py", "planted_late.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DISTRAIN_CONFIG_DIR", str(folder / "config"))
        patch.setattr(sys, "path", [*sys.path])
        make_importable(user_folders(None))  # as the workers of a launched run do
        yield folder


def verify_changes(
    changes: Mapping[str, dict[str, Any]], folder: Path
) -> dict[str, VerificationResult]:
    """Return the results on two ranks of the preset `ddp` with each of these changes, by name."""
    cases = {
        name: make_cases(name, load_preset("ddp", {**QUICK, **each}), steps=max(STEPS))[0]
        for name, each in changes.items()
    }
    return verify_in_process(cases, 2, STEPS, folder)


def launch_and_verify(preset: str = "ddp", **changes: Any) -> VerificationResult:
    """Return the result of a launched preset with changed keys (`__` stands for the dot)."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    (result,) = verify([preset], changes={**QUICK, **dotted})
    return result


# --- correct strategies pass --------------------------------------------------------------------


def test_correct_configs_pass_as_does_the_strategy_of_the_docs(
    user_project: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "your-own-task.md").read_text()
    found = re.search(r"```python\n# hand\.py\n(.*?)```", page, re.DOTALL)
    assert found
    (user_project / "hand.py").write_text(found[1])
    documented = {"of the docs": {"strategy": "hand:ByHand"}}
    results = verify_changes(RIGHT | RANDOM | documented, tmp_path)
    assert not {name: each.sentence for name, each in results.items() if not each.passed}
    for name in RIGHT:
        assert results[name].declared == [], name
        assert {check.step for check in results[name].checks} == {0, *STEPS}, name


def test_configs_that_cannot_be_equal_pass_with_a_declaration(tmp_path: Path) -> None:
    for reason, result in verify_changes(DECLARED, tmp_path).items():
        assert result.passed, (reason, result.first)
        assert reason in result.declared[0]
        has_buffers = reason in {"BatchNorm", "statistics that move in evaluation"}
        assert ("buffers" in {check.what for check in result.checks}) is has_buffers, reason


def test_buffers_that_the_loss_depends_on_are_those_of_each_rank(tmp_path: Path) -> None:
    for strategy, result in verify_changes(QUEUED, tmp_path).items():
        gradients = [check for check in result.checks if check.what == "gradients"]
        assert all(check.limit is not None and check.limit < 1e-5 for check in gradients)
        failed = [check.step for check in gradients if not check.passed][:1]
        assert failed == {"planted:NotZeroed": [2], "planted:Noise": [1]}.get(strategy, [])


def test_a_launched_run_passes_on_three_ranks_whose_loss_asks_for_the_rank() -> None:
    changes = {"strategy": "allreduce", "task__name": "planted_late:Ranked"}
    result = launch_and_verify(devices="cpu:3", train__accumulate=2, **changes)
    assert result.passed, result.sentence
    assert result.world_size == 3
    compared = {check.step for check in result.checks if check.what == "gradients"}
    assert compared >= {1, 2, 3, 20}
    assert len(compared) == 7


# --- bugs are found -----------------------------------------------------------------------


def test_each_bug_is_named_where_it_first_shows(tmp_path: Path) -> None:
    results = verify_changes({name: changes_of(name) for name in SAMPLE}, tmp_path)
    for bug, result in results.items():
        assert result.outcome == "differs", bug
        first, expected = result.first, BUGS[bug]
        assert first is not None
        assert first.what == expected.what, bug
        assert expected.step in (first.step, None), bug
        assert expected.sentence in first.sentence
        assert "BatchNorm" not in first.sentence
    # and a wrong task with its line and what to do
    assert re.search(
        r"^loss\(\) in planted_late.py, line \d+ returns a mean .* weight\(batch\)",
        results["Masked"].sentence,
    )
    assert 'Use reduction="mean"' in results["SummedLoss"].sentence
    assert results["Masked"].declared == []


# --- presets that cannot run ----------------------------------------------------------------------


def test_a_class_that_is_no_strategy_gives_one_sentence() -> None:
    result = launch_and_verify(strategy="planted:NoStrategy")
    assert result.outcome == "could not run"
    assert "returned a NoStrategy, not a distrain.runners.strategies.Strategy" in result.problem


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("planted:Nope", "defines no 'Nope'"),
        ("nowhere:Nope", "no module 'nowhere'"),
        ("ddpp", "did you mean ddp"),
    ],
)
def test_an_unknown_strategy_is_refused_before_anything_starts(
    strategy: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        list(verify(["ddp"], changes={"strategy": strategy}))


def test_a_run_that_other_hosts_join_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dist\.nodes: hosts join a single run"):
        list(verify(["ddp"], changes={"dist.nodes": 2, "devices": "cpu:1"}))


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_fails_if_a_preset_differs(user_project: Path) -> None:
    def distrain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "distrain", "verify", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    user_folder().mkdir(parents=True)
    (user_folder() / "wrong.toml").write_text(
        'strategy = "planted:Summed"\nlauncher = "spawn"\n[train]\nthreads = 1\n'
    )
    done = distrain("single", "wrong", "--ranks", "2")
    assert done.returncode == 1, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["preset", "single", "wrong"]
    assert done.stdout.splitlines()[1].endswith("the same")
    assert (
        "wrong on 2 ranks: gradients differ at step 1: 1.weight has a relative error of 1 (limit"
        in done.stderr
    )
    assert "differ only in rounding, measured for each tensor" in done.stderr
    done = distrain("single", "--json")
    assert done.returncode == 0
    (result,) = json.loads(done.stdout)
    assert (result["preset"], result["passed"], result["first"]) == ("single", True, None)
    assert not list(user_project.glob("runs"))
