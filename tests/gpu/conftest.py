"""Tests that need an NVIDIA GPU and a torch that can use it; skipped otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distrain import Run, launch
from distrain.runners.config.presets import load_preset
from distrain.runners.protocol.events import Facts, Notice

ALONE = {"strategy": "single", "launcher": "inline", "devices": [0]}
SHARED = {"devices": [0, 0], "oversubscribe": True}
LONGEST_S = 200.0


@pytest.fixture(scope="session", autouse=True)
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return torch.device("cuda", 0)


def run(folder: Path, changes: dict[str, Any], preset: str = "ddp") -> tuple[Run, dict[str, Any]]:
    """Train with a preset for five epochs, and wait for the end."""
    base = {"train.epochs": 5, "report.sample_s": 0.2}
    started = launch(load_preset(preset, base | changes), runs_dir=folder)
    summary = started.wait(LONGEST_S)
    assert summary["status"] == "completed", started.record.state.error
    return started, summary


def facts_of(run: Run) -> Facts:
    facts = run.record.state.facts
    assert facts is not None
    return facts


def notices_of(run: Run) -> list[str]:
    return [event.text for event in run.events(follow=False) if isinstance(event, Notice)]
