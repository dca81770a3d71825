"""Given a command typed wrong, then one clear sentence on stderr, exit code 2, and no data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runners.cli.commands import GROUPS

from .conftest import Distrain, Fabricated

COMMANDS = [command.name for group in GROUPS.values() for command in group]


def says(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("rnu ddp", "distrain: unknown command 'rnu'; did you mean run"),
        ("fly", "distrain: unknown command 'fly'; `distrain --help` lists all commands\n"),
        ("run", "distrain: the following arguments are required: PRESET"),
        ("run ddp --devics cpu:2", "unknown option '--devics'; did you mean --devices"),
        ("run ddp dp", "distrain: unknown argument 'dp'; see `distrain run --help`"),
        ("run ddpp", "distrain: there is no preset 'ddpp'; did you mean ddp"),
        ("run ./no.toml", "distrain: there is no preset file no.toml"),
        ("run ddp --set lr", "distrain: --set wants KEY=VALUE"),
        ("run ddp --set strategy=dpp", "strategy: unknown strategy 'dpp'; did you mean"),
        ("run ddp --set train.lrr=1", "distrain: train.lrr: unknown key; did you mean lr?"),
        ("run ddp --set model.name=resnet19", "unknown model 'resnet19'; did you mean"),
        ("run ddp --set data.name=digit", "unknown data set 'digit'; did you mean digits?"),
        ("run ddp --devices cpu:none", "distrain: devices: "),
        ("run ddp --devices=", "distrain: devices: "),
        ("run ddp --set train.batch_size=1", "distrain: train.batch_size: 1 is smaller than"),
        ("export latest --to xml", "invalid choice: 'xml'"),
        ("show latest", "distrain: there is no run or bench in"),
        ("presets validat", "invalid choice: 'validat'"),
    ],
)
def test_wrong_use_is_one_sentence(distrain: Distrain, arguments: str, sentence: str) -> None:
    told = says(distrain(*arguments.split()))
    assert sentence in told
    assert told.count("\n") == 1


def test_all_problems_of_a_config_are_told_at_once(distrain: Distrain) -> None:
    told = says(
        distrain(
            "run", "ddp", "--set", "train.epochs=x", "--set", "launcher=sprawn", "--set", "a=1"
        )
    )
    lines = told.splitlines()
    assert lines[0] == "distrain: this configuration cannot run:"
    assert {line.split(":")[0].strip() for line in lines[1:]} == {"train.epochs", "launcher", "a"}


def test_all_problems_of_a_file_are_told_under_its_name(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('strategy = "dpp"\n[train]\nepochs = -1\n')
    told = says(distrain("run", "bad.toml")).splitlines()
    assert told[0] == "distrain: bad.toml is not a valid preset:"
    assert len(told) == 3


def test_a_runs_folder_that_cannot_be_written(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = says(distrain("run", "ddp", "--runs-dir", "file/runs"))
    assert "cannot write to the runs folder" in told


def test_no_command_prints_help_as_talk(distrain: Distrain) -> None:
    told = says(distrain())
    assert all(f"\n  {command} " in told for command in COMMANDS)


def test_help_and_version_are_data(distrain: Distrain) -> None:
    helped, version = distrain("--help"), distrain("--version")
    assert (helped.returncode, version.returncode) == (0, 0)
    assert "Exit codes" in helped.stdout
    assert version.stdout.startswith("distrain 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from runners.cli import main

    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    assert f"distrain {command}" in capsys.readouterr().out.partition("examples:")[2]


def test_a_queue_that_cannot_be_is_one_sentence_and_nothing_starts(
    distrain: Distrain, runs_dir: Path
) -> None:
    done = distrain("run", "ddp", "--queue", DISTRAIN_CLAIMS_DIR="/proc/none")
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("distrain: the queue cannot use /proc/none: ")
    assert not runs_dir.exists()


def test_a_broken_pipe_ends_quietly(
    finished: Fabricated, surroundings: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(200):
        finished.log("rank-0", "x" * 1000 + "\n")
    shell = f"{sys.executable} -m runners logs latest | head -1"
    done = subprocess.run(
        shell, shell=True, env=surroundings, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "[launcher] hi\n"
    assert done.stderr == ""


def test_a_full_disk_behind_stdout_is_one_sentence(
    finished: Fabricated, surroundings: dict[str, str], tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "runners", "show", "latest"],
            env=surroundings,
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "distrain: No space left on device\n"


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, runners.cli, runners.cli.starting; "
        "print([name for name in ('torch', 'rich', 'textual', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"
