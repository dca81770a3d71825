"""Verification passes what is right, and names what is wrong.

What real ranks have left is judged; they are started once for many cases. Launched runs, the
process of the judge and the command follow below.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from runners.errors import ConfigError
from runners.plan import make_plan
from runners.presets import load_preset, user_folder
from runners.record import Record
from runners.state import create_run
from runners.verification.cases import cases, verify
from runners.verification.judge import Judge
from runners.verification.report import Report
from runners.writer import RecordWriter
from tests.engine.ranks import on_ranks

QUICK = {"devices": "cpu:2", "train.threads": 1, "launcher": "spawn"}
RIGHT: dict[str, dict[str, Any]] = {
    "momentum": {"train.momentum": 0.9, "train.clip_norm": 0.1, "train.weight_decay": 0.01},
    "adam": {"train.optimizer": "adam", "train.accumulate": 2, "precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "overflow": {"precision": "fp16", "train.optimizer": "adamw"},
}
DECLARED: dict[str, dict[str, Any]] = {
    "BatchNorm": {
        "model.name": "resnet18",
        "data.args": {"channels": 3},
        "train.accumulate": 2,
    },
    "dropout": {"model.args": {"dropout": 0.3}},
    "fp16_compress": {"ddp.comm_hook": "fp16_compress"},
}
BUGS: dict[str, dict[str, Any]] = {
    "NothingAveraged": {},
    "ResultDiscarded": {},
    "Summed": {},
    "Unweighted": {},
    "NotBroadcast": {},
    "AnotherSeed": {},
    "AroundTheWrapper": {},
    "OneBucketInHalf": {},
    "ScaledTwice": {"train.accumulate": 2},
    "UnscaledTwice": {"precision": "fp16"},
}
FOUND = {"Unweighted": ("gradients", 2)} | dict.fromkeys(
    ("NotBroadcast", "AnotherSeed"), ("initial weights", 0)
)


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder, with strategies of their own in it."""
    folder = tmp_path_factory.mktemp("verification")
    shutil.copy(Path(__file__).with_name("planted.py"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DISTRAIN_CONFIG_DIR", str(folder / "config"))
        yield folder


@pytest.fixture(scope="module")
def reports(place: Path) -> Iterator[dict[str, Report]]:
    """On two ranks: what is right, what is declared, and every bug."""
    bugs = {name: {"strategy": f"planted:{name}", **changes} for name, changes in BUGS.items()}
    wanted = {
        name: cases(name, load_preset("ddp", {**QUICK, **changes}))[0]
        for name, changes in {**RIGHT, **DECLARED, **bugs}.items()
    }
    folders = [
        create_run(place / "records", config, plan=make_plan(config), word=name)
        for name, (config, _) in wanted.items()
    ]
    configs = [case.config for case in wanted.values()]
    outcomes = on_ranks(2, list(zip(configs, folders, strict=True)), tapped=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    for (name, (config, about)), folder, (leader, _) in zip(
        wanted.items(), folders, outcomes, strict=True
    ):
        with closing(RecordWriter(folder)) as writer:
            for evaluation in leader.evaluations:
                writer.add(evaluation)
        verdict = Judge(config, make_plan(config), Record(folder)).verdict()
        found[name] = msgspec.structs.replace(about, **msgspec.structs.asdict(verdict))
    yield found
    torch.set_num_threads(threads)


def launched(preset: str = "ddp", **changes: Any) -> Report:
    """The report on a preset, launched with dotted keys changed (`__` for the dot)."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    (report,) = verify([preset], changes={**QUICK, **dotted})
    return report


# --- what is right passes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    assert report.passed, report.first
    assert report.declared == []
    assert {check.step for check in report.checks} == {0, 1, 2, 3}


@pytest.mark.parametrize("word", DECLARED)
def test_what_cannot_be_equal_is_declared_and_compared_as_it_must_hold(
    word: str, reports: dict[str, Report]
) -> None:
    report = reports[word]
    assert report.passed, report.first
    assert word in report.declared[0]
    assert ("buffers" in {check.what for check in report.checks}) == (word == "BatchNorm")


def test_a_launched_run_passes_on_three_ranks() -> None:
    report = launched(strategy="allreduce", devices="cpu:3", train__accumulate=2)
    assert report.passed, report.sentence
    assert report.world_size == 3
    assert {check.step for check in report.checks} == {0, 1, 2, 3}


def test_the_strategy_of_the_docs_passes(place: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your-own-task.md").read_text()
    found = re.search(r"```python\n# hand\.py\n(.*?)```", page, re.DOTALL)
    assert found
    (place / "hand.py").write_text(found[1])
    assert launched(strategy="hand:ByHand").passed


# --- what is wrong is named -----------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_named_with_the_first_tensor_that_differs(
    bug: str, reports: dict[str, Report]
) -> None:
    report = reports[bug]
    assert report.outcome == "differs"
    first = report.first
    assert first is not None
    assert (first.what, first.step) == FOUND.get(bug, ("gradients", 1))
    assert first.tensor == "1.weight"


# --- what cannot be verified ----------------------------------------------------------------------


def test_a_strategy_that_is_none_is_one_sentence() -> None:
    report = launched(strategy="planted:NoStrategy")
    assert report.outcome == "could not run"
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


def test_a_run_that_hosts_would_have_to_join_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dist\.nodes: hosts join a single run"):
        list(verify(["ddp"], changes={"dist.nodes": 2, "devices": "cpu:1"}))


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
