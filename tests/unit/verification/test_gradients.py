"""Which gradients the plain process can compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distrain.runners.config.schema import RunConfig
from distrain.runners.verification.gradients import ReferenceGradients


@pytest.mark.parametrize(
    ("syncs", "accumulate", "draws", "is_repeatable"),
    [
        (True, 1, False, True),
        (True, 2, False, False),
        (True, 1, True, False),
        (False, 2, True, True),
    ],
)
def test_statistics_of_all_ranks_are_those_of_a_step_that_each_rank_takes_at_once(
    syncs: bool, accumulate: int, draws: bool, is_repeatable: bool
) -> None:
    changes = {"train.sync_batchnorm": syncs, "train.accumulate": accumulate}
    process: Any = SimpleNamespace(
        config=RunConfig().with_changes(changes),
        plan=SimpleNamespace(world_size=2),
        device=torch.device("cuda"),
    )
    probe: Any = SimpleNamespace(is_repeatable=True, draws=draws)
    gradients = ReferenceGradients(process, probe)
    assert gradients.is_repeatable is is_repeatable
    assert any("sync_batchnorm" in each for each in gradients.declared) is not is_repeatable
