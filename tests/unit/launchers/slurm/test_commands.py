"""Slurm's commands, replaced by shell scripts: what they receive, and how errors are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm import commands
from tests.unit.launchers.slurm.conftest import Plays


def test_a_missing_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="sbatch was not found: this is not a login node of"):
        commands.submit(tmp_path / "job.sh", [], os.environ)


def test_an_error_keeps_slurms_own_words(plays: Plays, tmp_path: Path) -> None:
    plays(
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: nope' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2\n"
        "exit 1",
    )
    with pytest.raises(SlurmError) as error:
        commands.submit(tmp_path / "job.sh", [], os.environ)
    assert str(error.value) == (
        "sbatch failed: invalid partition specified: nope; "
        "Batch job submission failed: Invalid partition name specified"
    )


def test_an_error_without_output(plays: Plays) -> None:
    plays("scancel", "exit 3")
    with pytest.raises(SlurmError, match="scancel failed: exit code 3"):
        commands.cancel("7")


def test_a_command_that_hangs_is_given_up(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("scontrol", "exec sleep 600")
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    with pytest.raises(SlurmError, match=r"^scontrol did not answer within 0.2 s$"):
        commands.requeue("7")


def test_the_error_output_of_a_hanging_command_is_reported(plays: Plays) -> None:
    plays("sinfo", "echo 'sinfo: error: cannot stat file /no.conf, retrying' >&2; exec sleep 600")
    with pytest.raises(SlurmError) as error:
        commands.run_command("sinfo", timeout_s=3.0)
    said = "sinfo did not answer within 3 s: cannot stat file /no.conf, retrying"
    assert str(error.value) == said


@pytest.mark.parametrize("printed", ["12", "12;cluster", "warning of the site\n12"])
def test_the_id_of_a_job(plays: Plays, tmp_path: Path, printed: str) -> None:
    plays("sbatch", f"echo '{printed}'")
    assert commands.submit(tmp_path / "job.sh", [], os.environ) == "12"


@pytest.mark.parametrize(
    ("printed", "said"), [("", "nothing"), ("usage: sbatch [OPTIONS]", "usage: sbatch [OPTIONS]")]
)
def test_an_sbatch_that_prints_no_id(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, said: str
) -> None:
    plays("sbatch", f"echo '{printed}'")
    plays("squeue", "echo '12 (null)'")
    monkeypatch.setattr(commands, "LATE_JOB_S", 0.0)
    with pytest.raises(SlurmError) as error:
        commands.submit(tmp_path / "job.sh", [], os.environ)
    assert str(error.value) == f"sbatch printed no job id but {said}"


@pytest.mark.parametrize(
    "lines",
    [
        "{queues}; exec sleep 600",
        "{queues}; echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1",
        "{queues}; echo 12; echo 'the site wishes a nice day'",
    ],
)
def test_the_job_of_an_sbatch_that_does_not_answer_is_found(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    queue, script = tmp_path / "queue", tmp_path / "a run" / "job.sh"
    queue.write_text(f"9 {script}\n14 {tmp_path}/another/job.sh\n15 (null)\n")
    plays("sbatch", lines.format(queues=f"echo '12 {script}' >> {queue}"))
    plays("squeue", f"cat {queue}")
    monkeypatch.setattr(commands, "TIMEOUT_S", 1.0)
    assert commands.submit(script, [], os.environ) == "12"


def test_a_job_that_appears_after_the_timeout_of_sbatch_is_found(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, asked = tmp_path / "job.sh", tmp_path / "asked"
    plays("sbatch", "exec sleep 600")
    plays("squeue", f"test -e {asked} && echo '12 {script}'; touch {asked}")
    monkeypatch.setattr(commands, "TIMEOUT_S", 1.0)
    assert commands.submit(script, [], os.environ) == "12"


def test_it_is_reported_if_the_job_may_exist(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays("sbatch", "exec sleep 600")
    plays("squeue", "exec sleep 600")
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    with pytest.raises(SlurmError) as error:
        commands.submit(tmp_path / "job.sh", [], os.environ)
    assert str(error.value) == (
        "sbatch did not answer within 0.2 s; it is unknown whether the job was submitted: "
        "squeue did not answer within 0.2 s"
    )


def test_a_command_that_cannot_be_started(plays: Plays, tmp_path: Path) -> None:
    plays("sfolder", "exit")
    (tmp_path / "sfolder").chmod(0)
    with pytest.raises(SlurmError, match="sfolder could not be started: Permission denied"):
        commands.run_command("sfolder")


def test_variables_of_the_user_do_not_change_the_job(plays: Plays, tmp_path: Path) -> None:
    plays("sbatch", "env | grep -c 'SBATCH_\\|SQUEUE_'")
    conflicting = (
        "SBATCH_ARRAY_INX",
        "SBATCH_WAIT",
        "SBATCH_CLUSTERS",
        "SBATCH_ERROR",
        "SQUEUE_FORMAT",
    )
    environment = {**os.environ, **dict.fromkeys(conflicting, "1"), "SBATCH_PARTITION": "long"}
    assert commands.submit(tmp_path / "job.sh", [], environment) == "1"


def test_variables_of_a_surrounding_job_are_removed() -> None:
    around = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "1",
        "HOME": "/",
    }
    assert commands.without_job_variables(around) == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/"}
