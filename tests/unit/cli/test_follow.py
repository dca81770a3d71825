"""Whoever leaves a run that could be stopped is told that it continues."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from distrain.runners.cli import follow
from distrain.runners.cli.signals import Signals

RUN: Any = SimpleNamespace(kind="run", id="a-run", status="running", is_live=True)
LEAVING = "leaving; the run is running: `distrain watch a-run` follows it\n"
ENDED: Any = SimpleNamespace(kind="run", id="a-run", status="completed", is_live=False)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    view = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(follow, "present", lambda _: SimpleNamespace(view=lambda *_: view))
    return view


@pytest.mark.parametrize(("can_stop", "printed"), [(True, LEAVING), (False, "")])
def test_sigterm_leaves_a_run_and_says_so(
    can_stop: bool, printed: str, view: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    signals = cast(Signals, SimpleNamespace(interrupts=0, ended_by=15))
    assert follow.follow(RUN, signals, stream=sys.stderr, can_stop=can_stop) == 143
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize(
    ("run", "can_stop", "printed"),
    [
        (RUN, True, LEAVING),
        (RUN, False, ""),
        (ENDED, True, "leaving; the run is completed\n"),  # as its last lines were printed
    ],
)
def test_a_reader_that_ends_leaves_a_run_and_the_command_says_so(
    run: Any,
    can_stop: bool,
    printed: str,
    view: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def update() -> bool:
        raise BrokenPipeError

    view.update = update
    signals = Signals()
    with pytest.raises(BrokenPipeError):
        follow.follow(run, signals, stream=sys.stderr, can_stop=can_stop)
    assert capsys.readouterr().err == printed
