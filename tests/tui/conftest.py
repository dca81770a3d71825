"""Fixtures of the tests of the app."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain.tui.dialogs.error import ErrorDialog
from tests.support.records import RunBuilder


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings, presets and runs of the user who runs the tests out of them."""
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))


@pytest.fixture(autouse=True)
def _print_internal_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print the traceback of an internal error: a test may fail because its dialog is open."""
    show = ErrorDialog.__init__

    def print_and_show(self: ErrorDialog, error: BaseException) -> None:
        traceback.print_exception(error)
        show(self, error)

    monkeypatch.setattr(ErrorDialog, "__init__", print_and_show)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def make(runs_dir: Path) -> Callable[..., RunBuilder]:
    """Return a function that starts a record in the runs folder."""

    def begin(name: str = "", **how: Any) -> RunBuilder:
        return RunBuilder(runs_dir, name, **how)

    return begin


@pytest.fixture
def ended(make: Callable[..., RunBuilder]) -> Callable[..., RunBuilder]:
    """Return a function that writes a completed run of 40 steps with an evaluation."""

    def run(name: str = "", top1: float = 0.9, **how: Any) -> RunBuilder:
        return make(name, **how).steps(40).evaluation(loss=0.5, top1=top1).end()

    return run
