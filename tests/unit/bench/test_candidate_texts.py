"""Candidates as a person writes them: presets, and command lines of scripts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from distrain.runners import bench
from distrain.runners.bench.candidate_texts import find_candidate
from distrain.runners.bench.progress import shell_command
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my presets").mkdir()
    (tmp_path / "my presets" / "big.toml").write_text('[script]\nmodule = "package.train"\n')
    return tmp_path


def only(text: str, **changes: object) -> RunConfig:
    (config,) = bench.candidates([text], dict(changes)).values()
    return config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.py --lr 0.1", ["train.py", "--lr", "0.1"]),
        ("./tools/train --note 'a b'", ["./tools/train", "--note", "a b"]),
        ("-m package.train x", ["-m", "package.train", "x"]),
        ("./my presets/big.toml", ["-m", "package.train"]),
        ("-- train.py -- x", ["train.py", "--", "x"]),
        ("--set report.window_s=1 -- python_train.py", ["python_train.py"]),
    ],
)
def test_a_command_line_or_preset_of_a_script(text: str, words: list[str]) -> None:
    assert only(text).script.words == words


def test_options_before_a_script_and_changes_for_all() -> None:
    """Devices are as for `distrain run`: a script with devices has one rank for each."""
    assert only("train.py").launcher == "inline"
    config = only("--devices 0,1 --set report.window_s=0.5 train.py --devices x")
    assert (config.devices, config.launcher) == ([0, 1], "torchrun")
    assert config.script.args == ["--devices", "x"]
    assert config.report.window_s == 0.5
    assert not only("--no-auto train.py").script.auto
    for_all = only("--devices=cpu:3 train.py", devices="cpu:2", launcher="inline")
    assert (for_all.devices, for_all.launcher) == ("cpu:3", "inline")


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["train.py --ddp"], ["train.py"]),
        (["train.py", "train.py --compile"], ["train.py", "train.py --compile"]),
        (
            ["tools/train.py --net a --ddp -b 8", "tools/train.py --net a --fsdp -b 8"],
            ["train.py --ddp", "train.py --fsdp"],
        ),
        (
            ["train.py --lr 0.1 --ddp", "train.py --lr 0.2 --ddp"],
            ["train.py --lr 0.1", "train.py --lr 0.2"],
        ),
        (["a.py --lr 1", "ddp", "-m b.main --lr 1"], ["a.py", "ddp", "b.main"]),
        (["a/train.py", "b/train.py"], ["a/train.py", "b/train.py"]),
        (
            ["train.py --lr 0.1 -e 5", "train.py --wd 0.1 -e 5"],
            ["train.py --lr 0.1", "train.py --wd 0.1"],
        ),
        (
            ["ddp,train.lr=1,precision=fp32", "ddp,precision=bf16,train.lr=1", "train.py"],
            ["ddp,precision=fp32", "ddp,precision=bf16", "train.py"],
        ),
        (["ddp,train.lr=1", "single,train.lr=1"], ["ddp", "single"]),
        (["ddp,train.lr=1"], ["ddp,train.lr=1"]),
        (["train.py \x1b[2J", "train.py b"], ["train.py $'\\x1b[2J'", "train.py b"]),
        (
            ["train.py", "--devices cpu:2 train.py"],
            ["train.py", "--devices cpu:2 train.py"],
        ),
    ],
)
def test_names_are_what_differs(texts: list[str], names: list[str]) -> None:
    assert list(bench.candidates(texts, {})) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("python3 train.py", "begins with python3: leave it out"),
        ("nothing here", "names no script"),
        ("train.py,report.window_s=1", "write --set report.window_s=1 before it"),
        ("--devices cpu:2 ddp", "names no script"),
        (
            "--name x train.py",
            "only --devices, --launcher, --set and --no-auto may precede its script",
        ),
        ("--devices", "ends after --devices"),
        ("train.py 'x", "no closing quotation"),
        ("-m", "-m takes the name of a module"),
        ("--", "names no script"),
    ],
)
def test_what_is_no_candidate(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        bench.candidates([text], {})


def test_changes_of_a_preset_may_contain_quotes() -> None:
    assert only("ddp,description=it's").description == "it's"


def test_a_change_for_all_names_the_candidate_that_cannot_have_it() -> None:
    with pytest.raises(ConfigError, match=r"train\.py --a.*train"):
        bench.candidates(["ddp", "train.py --a"], {"train.lr": 0.1})


def test_the_baseline_is_a_name_or_a_command_line() -> None:
    changes = {"devices": "cpu:2"}
    configs = bench.candidates(["train.py -a --ddp", "train.py -a --fsdp", "ddp"], changes)
    for wanted in ("train.py --fsdp", "train.py  -a '--fsdp'"):
        assert find_candidate(wanted, configs, changes) == "train.py --fsdp"
    assert find_candidate("ddp", configs, changes) == "ddp"
    assert find_candidate("it's", configs, changes) == "it's"
    texts = ["ddp,train.lr=1,precision=fp32", "ddp,train.lr=1,precision=bf16"]
    configs = bench.candidates(texts, changes)
    assert find_candidate(texts[1], configs, changes) == "ddp,precision=bf16"


def test_the_same_command_line_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.py --a is given twice"):
        bench.candidates(["train.py --a", "train.py  --a"], {})


def test_the_shell_command_gives_the_same_candidates() -> None:
    texts = ["train.py --lr 1 --ddp", "--devices cpu:2 train.py --lr 1 --fsdp", "ddp"]
    made = bench.make(bench.candidates(texts, {}), {"steps": 50})
    words = shell_command(made)
    assert words == ["distrain", "bench", *texts, "--steps", "50"]
    saved = bench.make(bench.candidates(["./my presets/big.toml"], {}), {})
    assert shlex.join(shell_command(saved)) == "distrain bench big"


def test_programs_without_steps_and_targets_are_refused(folder: Path) -> None:
    program = folder / "train"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / "train.py").write_text("")
    configs = bench.candidates(["./train", "train.py"], {})
    with pytest.raises(ConfigError) as caught:
        bench.plans(bench.make(configs, {}))
    problem = "only Python scripts report steps; name a script (.py) or a module (-m)"
    assert caught.value.problems == [("train: script.path", problem)]
    to_target = bench.make({"one": configs["train.py"]}, {}, bench.Target(metric="a", value=1.0))
    with pytest.raises(ConfigError, match="cannot be trained to a target"):
        bench.plans(to_target)
