"""The app in a real terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.terminal import Terminal, terminal_in

# Trains for as long as any test takes, and leaves the cores to the app.
LONG = ("task.name=faulty:make", "task.args={pace = 0.05}", "train.epochs=4000", "train.threads=1")
LONG_RUN = tuple(f"--set={change}" for change in LONG)


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings, presets and runs of the user who runs the tests out of them."""
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shutil.copy(ROOT / "tests" / "integration" / "runs" / "faulty.py", tmp_path)
    with terminal_in(tmp_path) as found:
        yield found
