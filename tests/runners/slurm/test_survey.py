"""What the doctor tells of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.doctor import _slurm_lines
from runners.slurm import survey
from tests.runners.slurm.conftest import Plays

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
    assert _slurm_lines(survey.survey()) == [
        ("version", "slurm 23.11.4"),
        ("main*", "8 nodes, gpu:h100:4 each, time limit 1-00:00:00"),
        ("tiny", "1 node, no GPUs, time limit 10:00"),
        ("nodes report", "to 127.0.0.1, this host"),
    ]


def test_a_controller_that_is_away(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("sbatch", "exit 1")
    plays("sinfo", '[ "$1" = --version ] && echo slurm 23.11.4 || exec sleep 600')
    monkeypatch.setattr(survey, "SOON_S", 2.0)
    assert _slurm_lines(survey.survey()) == [
        ("version", "slurm 23.11.4"),
        ("trouble", "sinfo did not answer within 2 s"),
    ]


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    why = "there is no sbatch: this is no login node of a Slurm cluster"
    assert _slurm_lines(survey.survey()) == [("Slurm", f"none: {why}")]
