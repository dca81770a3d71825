"""What a login node knows of its cluster before a job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners import runs
from runners.errors import ConfigError
from runners.presets import load_preset
from runners.runs import launch
from runners.slurm import nodes
from tests.runners.slurm.conftest import Plays

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
def test_a_partition_that_is_there(cluster: None, partition: str | None) -> None:
    assert nodes.problems(partition) == []


@pytest.mark.parametrize("partition", ["nope", "main,nope"])
def test_one_that_is_not_comes_with_those_that_are(cluster: None, partition: str) -> None:
    told = "there is no partition nope; there are main, tiny"
    assert nodes.problems(partition) == [("slurm.partition", told)]


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = "there is no sbatch: this is no login node of a Slurm cluster"
    assert nodes.problems(None) == [("launcher", told)]


def test_a_slurm_that_does_not_answer(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", "exec sleep 600")
    monkeypatch.setattr(nodes, "SOON_S", 0.2)
    told = "Slurm cannot be asked: sinfo did not answer within 0.2 s"
    assert nodes.problems(None) == [("launcher", told)]


@pytest.mark.parametrize("queue", [False, True])
def test_no_run_is_left_of_what_cannot_be_submitted(
    cluster: None, tmp_path: Path, queue: bool
) -> None:
    config = load_preset("slurm", {"slurm.partition": "nope"})
    with pytest.raises(ConfigError) as error:
        launch(config, runs_dir=tmp_path / "runs", queue=queue)
    assert str(error.value) == "slurm.partition: there is no partition nope; there are main, tiny"
    assert not (tmp_path / "runs").exists()


def test_a_plan_needs_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs.check(load_preset("slurm", {"slurm.partition": "nope"})).scheduled
