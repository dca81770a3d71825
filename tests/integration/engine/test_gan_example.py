"""The GAN of examples/gan trains both networks in turn, on any ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.config.presets import load_preset
from tests.integration.engine.ranks import run_on_ranks
from tests.support import ROOT

FOLDER = ROOT / "examples" / "gan"


def test_the_generator_learns_the_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    changes = {"launcher": "spawn", "train.threads": 1, "eval.every_epochs": 20}
    config = load_preset(str(FOLDER / "gan.toml"), changes)
    first, second = run_on_ranks(2, [(config, tmp_path)])[0]
    errors = [each.metrics["radius_error"].value for each in first.evaluations]
    assert errors[-1] is not None
    assert errors[-1] < 0.35
    assert len(first.optimizer["state"]) == 12  # both networks have been trained
    assert all(first.model[name].equal(second.model[name]) for name in first.model)
