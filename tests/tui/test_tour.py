"""The hints of the first start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from distrain.tui import settings
from distrain.tui.app import DistrainApp
from distrain.tui.screens.launch_screen import LaunchScreen
from distrain.tui.screens.runs_screen import RunsScreen
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
