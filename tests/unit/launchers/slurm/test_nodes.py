"""What a login node knows about its cluster before a job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners import runs
from distrain.runners.config.presets import load_preset
from distrain.runners.errors import ConfigError
from distrain.runners.launchers.slurm import nodes
from distrain.runners.runs import launch
from tests.unit.launchers.slurm.conftest import Plays

MAIN_AND_TINY = """
case "$*" in
    *--all*--format=%R*|*--format=%R*--all*) printf 'main\\nmain\\ntiny\\n';;
    *) exit 1;;
esac
"""


@pytest.fixture
def cluster(plays: Plays) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", MAIN_AND_TINY)


@pytest.mark.parametrize("partition", [None, "main", "main,tiny"])
def test_a_partition_that_exists(cluster: None, partition: str | None) -> None:
    assert nodes.submission_problems(partition) == []


@pytest.mark.parametrize("partition", ["nope", "main,nope"])
def test_a_missing_partition_is_reported_with_those_that_exist(
    cluster: None, partition: str
) -> None:
    text = "there is no partition nope; available: main, tiny"
    assert nodes.submission_problems(partition) == [("slurm.partition", text)]


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = "sbatch was not found: this is not a login node of a Slurm cluster"
    assert nodes.submission_problems(None) == [("launcher", text)]


def test_a_slurm_that_does_not_answer(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", "exec sleep 600")
    monkeypatch.setattr(nodes, "INTERACTIVE_S", 0.2)
    text = "Slurm does not respond: sinfo did not answer within 0.2 s"
    assert nodes.submission_problems(None) == [("launcher", text)]


@pytest.mark.parametrize("queue", [False, True])
def test_a_run_that_cannot_be_submitted_leaves_no_folder(
    cluster: None, tmp_path: Path, queue: bool
) -> None:
    config = load_preset("slurm", {"slurm.partition": "nope"})
    with pytest.raises(ConfigError) as error:
        launch(config, runs_dir=tmp_path / "runs", queue=queue)
    assert str(error.value) == "slurm.partition: there is no partition nope; available: main, tiny"
    assert not (tmp_path / "runs").exists()


def test_a_plan_needs_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs.check(load_preset("slurm", {"slurm.partition": "nope"})).scheduled
