"""What the doctor reports about Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.cli.doctor import slurm_lines
from distrain.runners.doctor import slurm
from tests.unit.launchers.slurm.conftest import Plays

TWO = """
case "$*" in
    --version) echo 'slurm 23.11.4';;
    *%l*) printf 'main*|1-00:00:00|8|gpu:h100:4\\ntiny|10:00|1|(null)\\n';;
    *) echo '127.0.0.1 main*';;
esac
"""


def test_partitions_with_their_limits_nodes_and_gpus(plays: Plays) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", TWO)
    assert slurm_lines(slurm.describe_slurm()) == [
        ("version", "slurm 23.11.4"),
        ("main*", "8 nodes, gpu:h100:4 each, time limit 1-00:00:00"),
        ("tiny", "1 node, no GPUs, time limit 10:00"),
        ("address", "127.0.0.1: nodes report to it on this host"),
    ]


def test_the_name_of_a_cluster_is_no_partition(plays: Plays) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", TWO.replace("printf '", "printf 'CLUSTER: here\\n"))
    assert ("tiny", "1 node, no GPUs, time limit 10:00") in slurm_lines(slurm.describe_slurm())


def test_a_controller_that_is_away(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", '[ "$1" = --version ] && echo slurm 23.11.4 || exec sleep 600')
    monkeypatch.setattr(slurm, "INTERACTIVE_S", 2.0)
    assert slurm_lines(slurm.describe_slurm()) == [
        ("version", "slurm 23.11.4"),
        ("problem", "sinfo did not answer within 2 s"),
    ]


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    why = "sbatch was not found: this is not a login node of a Slurm cluster"
    assert slurm_lines(slurm.describe_slurm()) == [("Slurm", f"none: {why}")]
