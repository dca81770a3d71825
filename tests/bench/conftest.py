"""Benches of real runs, in a folder of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from benched import processes_of

from runners.bench import Bench


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with data of their own in it."""
    shutil.copy(Path(__file__).with_name("slow_images.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))
    return tmp_path


@pytest.fixture
def begun(place: Path) -> Iterator[list[Bench]]:
    """Benches put in here are ended for good after the test."""
    benches: list[Bench] = []
    yield benches
    for one in benches:
        for process in processes_of(one):
            process.kill()
