"""Given a command typed wrong, then one clear sentence on stderr, exit code 2, and no data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.runners.cli.command_table import GROUPS
from distrain.runners.errors import RunsFolderError
from distrain.runners.session import runs_folder
from tests.support import namespaces

from .conftest import Distrain, SampledRun

COMMANDS = [command.name for group in GROUPS.values() for command in group]


def usage_error(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("rnu ddp", "distrain: unknown command 'rnu'; did you mean run"),
        ("tui", "distrain: unknown command 'tui': `distrain-tui` opens the terminal app\n"),
        ("fly", "distrain: unknown command 'fly'; `distrain --help` lists all commands\n"),
        (
            "run",
            "distrain: name a preset, or a script with its arguments; see `distrain run --help`",
        ),
        ("run ddp --devics cpu:2", "unknown option '--devics'; did you mean --devices"),
        ("run ddp --batch-size 4", "'--batch-size'; did you mean --set train.batch_size=…?"),
        ("run ddp --strategy dp", "unknown option '--strategy'; did you mean --set strategy=…?"),
        ("run ddp --set lr=1", "distrain: lr: unknown key; did you mean train.lr?"),
        ("run ddp dp", "distrain: unknown argument 'dp'; see `distrain run --help`"),
        ("run ddpp", "distrain: there is no preset 'ddpp'; did you mean ddp"),
        ("run ./no.toml", "distrain: there is no preset file no.toml"),
        ("run ddp --set lr", "distrain: --set takes KEY=VALUE"),
        ("run ddp --set=--", "argument --set: -- is not a value"),
        ("run ddp --sweep --", "argument --sweep: -- is not a value"),
        ("presets show /dev/zero", "distrain: /dev/zero cannot be read: it is larger than"),
        ("run ddp --set strategy=dpp", "strategy: unknown strategy 'dpp'; did you mean"),
        ("run ddp --set train.lrr=1", "distrain: train.lrr: unknown key; did you mean lr?"),
        ("run ddp --set train.lrr=", "distrain: train.lrr: unknown key; did you mean lr?"),
        ("watch latest --every -1", "--every: must be a number of seconds ≥ 0, not '-1'"),
        ("watch latest --every nan", "--every: must be a number of seconds ≥ 0, not 'nan'"),
        ("bench ddp --precision %", "--precision: must be a share such as 2% or 0.02, not '%'"),
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
def test_a_usage_error_is_one_sentence(distrain: Distrain, arguments: str, sentence: str) -> None:
    message = usage_error(distrain(*arguments.split()))
    assert sentence in message
    assert message.count("\n") == 1


def test_all_problems_of_a_config_are_reported_at_once(distrain: Distrain) -> None:
    message = usage_error(
        distrain(
            "run", "ddp", "--set", "train.epochs=x", "--set", "launcher=sprawn", "--set", "a=1"
        )
    )
    lines = message.splitlines()
    assert lines[0] == "distrain: this configuration cannot run:"
    assert {line.split(":")[0].strip() for line in lines[1:]} == {"train.epochs", "launcher", "a"}


def test_all_problems_of_a_file_are_reported_with_its_name(
    distrain: Distrain, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text('strategy = "dpp"\n[train]\nepochs = -1\n')
    message = usage_error(distrain("run", "bad.toml")).splitlines()
    assert message[0] == "distrain: bad.toml is not a valid preset:"
    assert len(message) == 3


def test_verifying_nothing_is_no_success(distrain: Distrain) -> None:
    message = usage_error(distrain("verify", "--set", "train.lrr=1")).splitlines()
    assert message[0] == "allreduce is skipped: train.lrr: unknown key; did you mean lr?"
    assert message[-1] == "distrain: no preset can be verified here"


def test_a_runs_folder_that_cannot_be_written(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = usage_error(distrain("run", "ddp", "--runs-dir", "file/runs"))
    assert "cannot write to the runs folder" in message


def test_without_a_command_help_goes_to_stderr(distrain: Distrain) -> None:
    message = usage_error(distrain())
    assert all(f"\n  {command} " in message for command in COMMANDS)


def test_help_and_version_go_to_stdout(distrain: Distrain) -> None:
    help_output, version = distrain("--help"), distrain("--version")
    assert (help_output.returncode, version.returncode) == (0, 0)
    assert "Exit codes" in help_output.stdout
    assert version.stdout.startswith("distrain 0.")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_that_cannot_be_written_is_an_error(unbuffered: str) -> None:
    command = [sys.executable, "-m", "distrain", "--help"]
    variables = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=variables)
    assert (done.returncode, done.stderr) == (1, b"distrain: No space left on device\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from distrain.runners.cli import main

    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    assert f"distrain {command}" in capsys.readouterr().out.partition("examples:")[2]


def test_an_unusable_queue_is_one_sentence_and_starts_nothing(
    distrain: Distrain, runs_dir: Path
) -> None:
    done = distrain("run", "ddp", "--queue", DISTRAIN_CLAIMS_DIR="/proc/none")
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("distrain: /proc/none cannot be used: ")
    assert not runs_dir.exists()


def test_a_broken_pipe_ends_quietly(
    finished: SampledRun, environment: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(200):
        finished.log("rank-0", "x" * 1000 + "\n")
    shell = f"{sys.executable} -m runners logs latest | head -1"
    done = subprocess.run(
        shell, shell=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "[launcher] hi\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words", ["run ddp", "resume latest", "bench ddp allreduce", "verify single", "doctor"]
)
def test_a_current_folder_that_was_deleted_is_one_sentence(
    words: str, finished: SampledRun, environment: dict[str, str], tmp_path: Path
) -> None:
    command = f'mkdir gone; cd gone; rmdir ../gone; "$0" -m distrain {words}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "distrain: the current folder has been deleted; go to another\n"


def test_a_runs_folder_that_cannot_exist_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").symlink_to("/mnt/not-there")
    monkeypatch.delenv("DISTRAIN_RUNS_DIR", raising=False)
    with pytest.raises(RunsFolderError, match="is a link to /mnt/not-there, which does not exist"):
        runs_folder(cwd=str(tmp_path))
    with pytest.raises(RunsFolderError, match="File name too long"):
        runs_folder("x" * 300)


def test_a_full_disk_behind_stdout_is_one_sentence(
    finished: SampledRun, environment: dict[str, str], tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distrain", "show", "latest"],
            env=environment,
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "distrain: No space left on device\n"


@pytest.mark.skipif(bool(namespaces.problem()), reason=str(namespaces.problem()))
def test_a_system_without_proc_is_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    command = [sys.executable, "-m", "distrain", "runs"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *command],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("distrain: /proc is not mounted, ")


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, distrain.runners.cli, distrain.runners.cli.run; "
        "print([name for name in ('torch', 'rich', 'textual', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"
