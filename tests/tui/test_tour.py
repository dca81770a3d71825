"""The hints of the first start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain.runners import runs
from distrain.runners.runs import Run
from distrain.tui import settings
from distrain.tui.app import DistrainApp
from distrain.tui.dialogs.history import HistoryDialog
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.preset_list import PresetList
from distrain.tui.widgets.run_table import RunTable
from distrain.tui.widgets.tour import Tour
from tests.support.records import RunBuilder

from .app_driver import screen_lines, until

Make = Callable[..., RunBuilder]


def test_hints_are_shown_once_and_escape_closes_them(runs_dir: Path) -> None:
    async def play() -> None:
        app = DistrainApp(runs_dir, tour=True)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "Welcome" in "\n".join(screen_lines(app)), "shown")
            assert isinstance(app.screen, LaunchScreen)
            assert "where enter launches it" in "\n".join(screen_lines(app)), "n does nothing here"
            assert "n chooses" not in "\n".join(screen_lines(app))
            assert "q quits; runs continue" in "\n".join(screen_lines(app))
            panel, panes = app.screen.query_one(Tour).region, app.screen.query("#launch > *")
            assert not any(pane.region.overlaps(panel) for pane in panes)
            await pilot.press("escape")
            await until(pilot, lambda: not app.screen.query(Tour), "closed")
            assert isinstance(app.screen, LaunchScreen)
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunsScreen), "left")
        app = DistrainApp(runs_dir, tour=True)
        async with app.run_test() as pilot:
            await pilot.pause(0.5)
            assert not any(screen.query(Tour) for screen in app.screen_stack)

    asyncio.run(play())
    assert settings.load()[0].tour_shown


def test_a_launch_at_the_first_start_takes_the_hints_with_its_screen(
    ended: Make, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "launch", lambda *_, **__: Run(ended("first").record))

    async def play() -> None:
        app = DistrainApp(runs_dir, tour=True)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: app.screen.query(Tour), "shown")
            await until(pilot, lambda: app.screen.query_one(PresetList).name_now, "listed")
            await pilot.press("ctrl+r")
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
            await pilot.press("question_mark", "escape", "escape")
            await until(pilot, lambda: isinstance(app.screen, RunsScreen), "left")
            assert not app.internal_errors

    asyncio.run(play())


def test_a_dialog_that_opens_first_leaves_the_hints_to_the_next_start(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DistrainApp, "action_new", DistrainApp.action_history)

    async def play() -> None:
        app = DistrainApp(runs_dir, tour=True)
        async with app.run_test() as pilot:
            await until(pilot, lambda: isinstance(app.screen, HistoryDialog), "opened")
            await pilot.pause(0.5)
            assert not app.internal_errors

    asyncio.run(play())
    assert not settings.load()[0].tour_shown


def test_hints_leave_the_keys_to_the_screen(ended: Make, runs_dir: Path) -> None:
    ended("first", ago=10)
    ended("second", ago=20)

    async def play() -> None:
        app = DistrainApp(runs_dir, tour=True)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "Welcome" in "\n".join(screen_lines(app)), "shown")
            table = app.screen.query_one(RunTable)
            await until(pilot, lambda: len(table.rows) == 2, "listed")
            await pilot.press("down", "n")
            await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "opened")
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunsScreen), "left")
            assert table.row is not None
            assert table.row.name == "second"

    asyncio.run(play())
