"""Slurm's commands, played by shell scripts: what is handed on, and what is told when they fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.errors import SlurmError
from runners.slurm import commands

Plays = Callable[[str, str], None]


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Have a command do what a few lines of shell say."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def one(name: str, lines: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)

    return one


def test_a_command_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="there is no sbatch: this is no login node of a Slurm"):
        commands.submit(tmp_path / "job.sh", [], os.environ)


def test_a_refusal_in_slurms_own_words(plays: Plays, tmp_path: Path) -> None:
    plays(
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: nope' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2\n"
        "exit 1",
    )
    with pytest.raises(SlurmError) as error:
        commands.submit(tmp_path / "job.sh", [], os.environ)
    assert str(error.value) == (
        "sbatch refused: invalid partition specified: nope; "
        "Batch job submission failed: Invalid partition name specified"
    )


def test_a_refusal_without_a_word(plays: Plays) -> None:
    plays("scancel", "exit 3")
    with pytest.raises(SlurmError, match="scancel refused: exit code 3"):
        commands.cancel("7")


def test_a_command_that_hangs_is_given_up(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("scontrol", "exec sleep 600")
    monkeypatch.setattr(commands, "PATIENCE_S", 0.2)
    with pytest.raises(SlurmError, match=r"scontrol did not answer within 0.2 s"):
        commands.requeue("7")


@pytest.mark.parametrize("printed", ["12", "12;cluster", "warning of the site\n12"])
def test_the_id_of_a_job(plays: Plays, tmp_path: Path, printed: str) -> None:
    plays("sbatch", f"echo '{printed}'")
    assert commands.submit(tmp_path / "job.sh", [], os.environ) == "12"


def test_a_job_around_us_says_nothing_of_ours() -> None:
    around = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "1",
        "HOME": "/",
    }
    assert commands.outside(around) == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/"}
