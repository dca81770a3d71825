"""Verification in the app: real ones, and their end when somebody leaves."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from runners.config import RunConfig
from runners.presets import load_preset
from tui.app import DistrainApp
from tui.data.form import Draft
from tui.data.verifying import Entry, Verifier, Wanted
from tui.screens.dialogs import PickOne
from tui.screens.launch import LaunchScreen
from tui.screens.verify import VerifyScreen, ask_what_to_verify
from tui.widgets.verify_table import VerifyTable

from .conftest import until

RUNS_S = 240.0  # three processes that load torch, where others compute as well
Steps = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where verification keeps its records, and nobody else does."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return folder


def play(steps: Steps) -> None:
    async def played() -> None:
        app = DistrainApp()
        async with app.run_test(size=(100, 30)) as pilot:
            await steps(pilot, app)
            assert app.mishaps == []

    asyncio.run(played())


def at_work(folder: Path, stage: str = "") -> list[str]:
    """The command lines of all processes of the runs in a folder; those of one module."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = shlex.join(process.cmdline())
            if str(folder) in command + process.environ().get("DISTRAIN_RUN", ""):
                found.append(command)
    return [command for command in found if stage in command]


def entries_of(app: DistrainApp) -> list[Entry]:
    return list(app.screen.query_one(VerifyTable)._entries)


def test_a_preset_is_verified_as_it_stands_in_the_form(scratch: Path) -> None:
    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        screen = app.screen
        assert isinstance(screen, LaunchScreen)
        await until(pilot, lambda: screen._drafts, "the presets are read")
        screen._now = "single"
        screen._drafts["single"] = screen._drafts["single"].with_value("train.threads", 1)
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, PickOne), "asked")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, VerifyScreen), "opened")
        await until(
            pilot, lambda: [each.state for each in entries_of(app)] == ["done"], "done", RUNS_S
        )
        (entry,) = entries_of(app)
        assert entry.report.preset == "single"
        assert entry.outcome == "the same", entry.report.sentence
        await pilot.press("y")
        assert "✔ the same" in app.clipboard
        assert "nearest to its limit: " in app.clipboard

    play(steps)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("leave", "stage"), [("escape", "runners.worker"), ("q", "runners.verification.judge")]
)
def test_nothing_is_left_when_somebody_leaves(leave: str, stage: str, scratch: Path) -> None:
    wanted = Wanted("single", load_preset("single", {"train.threads": 1}))

    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        app.push_screen(VerifyScreen([wanted, wanted]))
        await until(pilot, lambda: at_work(scratch, stage), "at work", RUNS_S)
        assert [each.state for each in entries_of(app)] == ["verifying", "waiting"]
        await pilot.press(leave)
        if leave == "escape":
            await until(pilot, lambda: not at_work(scratch), "ended")
            assert isinstance(app.screen, LaunchScreen)

    play(steps)
    assert at_work(scratch) == []
    assert list(scratch.iterdir()) == []


def test_a_preset_that_cannot_run_says_why_and_starts_nothing(scratch: Path) -> None:
    config = RunConfig().with_changes({"devices": "cpu:2", "train.batch_size": 1})
    *_, entries = Verifier([Wanted("tiny", config)], ranks=(1, 2)).looks()
    (entry,) = entries
    assert entry.outcome == "could not run"
    assert "1 is smaller than 2 ranks" in entry.report.sentence
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("preset", "offered"), [("ddp", ["own", "ranks", "all"]), ("single", ["own", "all"])]
)
def test_several_ranks_are_offered_to_what_has_them(preset: str, offered: list[str]) -> None:
    async def steps(pilot: Pilot[None], app: DistrainApp) -> None:
        draft = Draft.of(preset, load_preset(preset))
        ask_what_to_verify(app, draft, [draft])
        await until(pilot, lambda: app.screen.query(OptionList), "asked")
        options = app.screen.query_one(OptionList).options
        assert [option.id for option in options] == offered

    play(steps)
