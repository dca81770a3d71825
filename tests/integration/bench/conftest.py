"""Benches of real runs, in a folder of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrain.runners.bench import Bench
from tests.support.benches import processes_of


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder that contains data of their own."""
    shutil.copy(Path(__file__).with_name("slow_images.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))
    return tmp_path


@pytest.fixture
def started_benches(user_folder: Path) -> Iterator[list[Bench]]:
    """Return a list; the processes of benches in it are killed after the test."""
    benches: list[Bench] = []
    yield benches
    for one in benches:
        for process in processes_of(one):
            process.kill()
