"""The batch script of a run, as text and in a shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.slurm.script import batch_script
from distrain.runners.protocol.client import ServerAddresses

FOLDER = Path("/home/ann/runs/20261122-114218-ddp-x7k2")


def script(folder: Path = FOLDER, **changes: Any) -> str:
    """Return the script of a run with changed keys of [slurm] (others with `__` for the dot)."""
    dotted = {(k.replace("__", ".") if "__" in k else f"slurm.{k}"): v for k, v in changes.items()}
    config = RunConfig().with_changes({"launcher": "slurm", "train.threads": 3, **dotted})
    return batch_script(config, plan_here(config), folder, ServerAddresses("", "tcp:10.0.0.1:4321"))


def options(text: str) -> list[str]:
    """Return the options of sbatch in a script."""
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]


def command(text: str) -> list[str]:
    """Return the words of the command that a script runs at its end."""
    return shlex.split(text[text.index("\nexec ") :].replace("\\\n", " "))


def test_only_configured_options_are_in_the_script() -> None:
    assert options(script()) == [
        "--job-name=ddp-x7k2",
        f"--output={FOLDER}/logs/job.log",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--no-requeue",
    ]


def test_all_options() -> None:
    text = script(
        partition="gpu",
        account="lab",
        qos="long",
        constraint="a100",
        nodes=4,
        gpus_per_node=8,
        cpus_per_task=6,
        memory="64G",
        time="1:00:00",
        requeue=True,
        extra=["--exclusive", "--comment=a b"],
    )
    assert options(text)[3:] == [
        "--partition=gpu",
        "--account=lab",
        "--qos=long",
        "--constraint=a100",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--cpus-per-task=48",
        "--gpus-per-node=8",
        "--mem=64G",
        "--time=1:00:00",
        "--requeue",
        "--exclusive",
        "--comment='a b'",
    ]


@pytest.mark.parametrize(
    ("via", "cores", "tasks", "each"),
    [
        ("torchrun", 3, 1, ["--cpus-per-task=6"]),
        ("torchrun", None, 1, ["--cpus-per-task=2"]),
        ("srun", 3, 2, ["--cpus-per-task=3"]),
        ("srun", None, 2, []),
    ],
)
def test_a_torchrun_has_the_cores_of_its_ranks_and_a_rank_of_srun_its_own(
    via: str, cores: int | None, tasks: int, each: list[str]
) -> None:
    text = script(via=via, tasks_per_node=2, nodes=2, cpus_per_task=cores)
    assert f"--ntasks-per-node={tasks}" in options(text)
    assert [option for option in options(text) if "cpus" in option] == each
    assert [word for word in command(text) if "cpus" in word] == each


def test_srun_is_the_jobs_own_process_and_starts_node_agents() -> None:
    words = command(script(report="tcp"))
    assert words[:3] == ["exec", "srun", "--kill-on-bad-exit=1"]
    assert words[-3:] == ["-P", "-m", "distrain.runners.launchers.node"]


@pytest.mark.parametrize("report", ["auto", "files"])
def test_the_relay_starts_srun_unless_ranks_report_by_tcp(report: str) -> None:
    words = command(script(report=report))
    assert words[2:5] == ["-P", "-m", "distrain.runners.supervision.relay"]
    assert words[5:7] == ["srun", "--kill-on-bad-exit=1"]


def test_ranks_that_report_by_files_get_no_address() -> None:
    assert "export DISTRAIN_SOCKET=''" in script(report="files").splitlines()


def test_the_prologue_comes_before_our_lines() -> None:
    lines = script(prologue=["module load cuda", "source env.sh"]).splitlines()
    first_export = next(at for at, line in enumerate(lines) if line.startswith("export"))
    assert lines.index("module load cuda") < lines.index("source env.sh") < first_export


def test_the_script_contains_the_address_but_not_the_token() -> None:
    exports = [line for line in script().splitlines() if line.startswith("export")]
    assert f"export DISTRAIN_RUN={FOLDER}" in exports
    assert "export DISTRAIN_SOCKET=tcp:10.0.0.1:4321" in exports
    assert f"export DISTRAIN_TOKEN_FILE={FOLDER}/token" in exports
    assert "export OMP_NUM_THREADS=3" in exports
    assert not any(line.startswith("export DISTRAIN_TOKEN=") for line in exports)


def test_a_shell_parses_the_script_for_any_name_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "50% of 'it' $HOME"
    text = script(folder)
    assert f"--output={shlex.quote(str(folder).replace('%', '%%') + '/logs/job.log')}" in options(
        text
    )
    shell = text.partition("\nexec ")[0] + 'printf %s "$DISTRAIN_RUN"'
    done = subprocess.run(["bash"], input=shell, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (str(folder), "")
