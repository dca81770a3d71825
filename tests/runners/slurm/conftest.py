"""Slurm's commands, played by shell scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Plays = Callable[[str, str], None]


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Have a command do what a few lines of shell say."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def one(name: str, lines: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)

    return one
