"""What the palette lists and finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from distrain.runners.runs import Run
from distrain.tui.app import DistrainApp
from distrain.tui.data.palette import PaletteEntry, find_lines
from distrain.tui.dialogs.palette import PaletteDialog
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.screens.runs_screen import RunsScreen
from distrain.tui.widgets.log_pane import LogPane
from tests.support.records import RunBuilder

from .app_driver import messages, until

Make = Callable[..., RunBuilder]
Scenario = Callable[[Pilot[None], DistrainApp], Awaitable[None]]


def play(scenario: Scenario, runs_dir: Path, run: RunBuilder | None = None, **how: bool) -> None:
    """Play a scenario on the table of runs, or on the screen of a run."""

    async def played() -> None:
        app = DistrainApp(runs_dir, session=run and Run(run.record), **how)
        async with app.run_test(size=(120, 36)) as pilot:
            screen = app.screen
            if isinstance(screen, RunScreen):
                await until(pilot, lambda: screen.frame is not None, "read")
            elif isinstance(screen, RunsScreen):
                await until(pilot, lambda: screen.is_complete, "read")
            await scenario(pilot, app)
            if app.internal_errors:
                raise app.internal_errors[0]

    asyncio.run(played())


async def listed(pilot: Pilot[None], typed: str = "") -> dict[str, bool]:
    """Open the palette, type, and return the ids it lists, each with whether it can be chosen."""
    await pilot.press("ctrl+p", *typed)
    await until(pilot, lambda: isinstance(pilot.app.screen, PaletteDialog), "opened")
    await pilot.pause()
    options = pilot.app.screen.query_one(OptionList)
    return {option.id: not option.disabled for option in options.options if option.id}


def test_the_palette_lists_what_is_possible_here(ended: Make, runs_dir: Path) -> None:
    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        entries = await listed(pilot)
        assert entries["run.rerun"]
        assert not entries["run.stop"]  # it has ended
        assert not any(id.startswith(("log.", "runs.", "bench.")) for id in entries)
        await pilot.press("escape", "l")
        await until(pilot, lambda: app.screen.query_one(LogPane).region, "logs")
        assert (await listed(pilot))["log.save"]

    play(scenario, runs_dir, ended("mine"))


def test_enter_in_a_palette_that_has_just_opened_does_nothing(runs_dir: Path, ended: Make) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await listed(pilot)
        await pilot.press("enter")
        assert isinstance(app.screen, PaletteDialog)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened by the first entry")

    play(scenario, runs_dir)


def test_a_palette_that_finds_nothing_says_so(runs_dir: Path, ended: Make) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        assert await listed(pilot, "zzzz") == {}
        (found,) = app.screen.query_one(OptionList).options
        assert str(found.prompt) == "no action or theme matches"
        await pilot.press("enter")
        assert isinstance(app.screen, PaletteDialog)

    play(scenario, runs_dir)


def test_a_read_only_palette_changes_nothing(ended: Make, runs_dir: Path) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        entries = await listed(pilot)
        assert entries["runs.open"]
        assert not any(entries[f"runs.{name}"] for name in ("rerun", "edit", "delete", "pin"))
        assert not entries["app.new"]

    play(scenario, runs_dir, readonly=True)


def test_a_palette_without_room_for_a_line_ignores_the_keys_of_its_list(
    ended: Make, runs_dir: Path
) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        await pilot.resize_terminal(80, 3)
        await listed(pilot)
        await pilot.press("down", "down", "pagedown", "pageup")
        await pilot.pause()
        assert isinstance(app.screen, PaletteDialog)

    play(scenario, runs_dir)


@pytest.mark.parametrize(("typed", "theme"), [("light", "textual-light"), ("drac", "dracula")])
def test_the_palette_finds_themes(ended: Make, runs_dir: Path, typed: str, theme: str) -> None:
    ended("mine")

    async def scenario(pilot: Pilot[None], app: DistrainApp) -> None:
        found = await listed(pilot, typed)
        assert all(id.startswith("theme.") for id in found)
        assert f"theme.{theme}" in found
        while list(found)[app.screen.query_one(OptionList).highlighted or 0] != f"theme.{theme}":
            await pilot.press("down")
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == theme, "changed")
        assert messages(app) == []

    play(scenario, runs_dir)


@pytest.mark.parametrize(
    ("query", "first"),
    [("fscr", "app.full"), ("stop", "run.stop"), ("checkpoint", "run.stop"), ("zom", "plot.in")],
)
def test_entries_are_found_by_letters_and_by_words(query: str, first: str) -> None:
    entries = [
        PaletteEntry("run.stop", "Run", "Stop", "Stop the run, with or without a checkpoint."),
        PaletteEntry("plot.in", "Plots", "Zoom in", "Show half the x range."),
        PaletteEntry("app.full", "Everywhere", "Full screen", "Maximize the focused pane."),
    ]
    assert [line.entry and line.entry.id for line in find_lines(entries, query)] == [first]


def test_without_a_query_each_context_has_a_heading() -> None:
    entries = [PaletteEntry("a", "Run", "A", ""), PaletteEntry("b", "Plots", "B", "")]
    assert [line.heading for line in find_lines(entries, " ")] == ["Run", "", "Plots", ""]
