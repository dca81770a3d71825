"""Messages come where they hide the least of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.geometry import Offset, Region, Size

from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from distrain.tui.app import DistrainApp
from distrain.tui.screens.run_screen import RunScreen
from distrain.tui.widgets.toast_place import FRAME, choose_place, place_toasts
from tests.support.records import RunBuilder

from .app_driver import screen_lines, until

SCREEN = Size(120, 36)


@pytest.mark.parametrize(
    ("taken", "place"),
    [
        ([Region(0, 0, 40, 35)], (70, 32)),
        ([Region(60, 10, 60, 25)], (70, 0)),
        ([Region(60, 0, 60, 35)], (0, 32)),
        ([Region(0, 5, 120, 30)], (70, 0)),
        ([Region(0, 0, 120, 10), Region(0, 14, 120, 21)], (70, 11)),
        ([SCREEN.region], (70, 32)),
    ],
    ids=["left", "bottom right", "right", "bottom", "all but a gap", "all"],
)
def test_the_place_is_a_free_corner_or_else_a_gap(
    taken: list[Region], place: tuple[int, int]
) -> None:
    costs = [
        [int(any((x, y) in region for region in taken)) for x in range(120)] for y in range(36)
    ]
    assert choose_place(SCREEN, Size(50, 3), costs) == Offset(*place)


def test_a_message_hides_nothing_of_a_run_on_a_small_terminal(
    make: Callable[..., RunBuilder], runs_dir: Path
) -> None:
    run = make("mine").steps(30)

    async def play() -> None:
        app = DistrainApp(runs_dir, session=Run(Record(runs_dir / run.id)))
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "opened")
            await until(pilot, lambda: app.screen.frame, "read")
            await pilot.pause()
            before = screen_lines(app)
            app.notify("Copied: the run's id", timeout=600)
            await until(pilot, lambda: hides_nothing(app, before), "placed where nothing is")

    def hides_nothing(app: DistrainApp, before: list[str]) -> bool:
        now = screen_lines(app)
        changed = {
            (x, y) for y in range(24) for x in range(80) if now[y][x] != before[y][x] not in FRAME
        }
        return "Copied" in "".join(now) and not changed

    asyncio.run(play())


def test_a_screen_that_has_shrunk_since_its_layout_still_gets_its_messages(
    make: Callable[..., RunBuilder], runs_dir: Path
) -> None:
    make("mine").steps(30).note(name="e\u0301" * 100, notes="e\u0301" * 100)

    async def play() -> None:
        app = DistrainApp(runs_dir)
        async with app.run_test(size=(120, 36), notifications=True) as pilot:
            await until(pilot, lambda: "e\u0301" in "".join(screen_lines(app)), "listed")
            app.notify("a message", timeout=600)
            await until(pilot, lambda: "a message" in "".join(screen_lines(app)), "shown")
            for size in (Size(20, 5), Size(1, 1), Size(120, 36)):
                app.screen._size_updated(size, size, size, layout=False)
                place_toasts(app.screen)
            assert not app.internal_errors

    asyncio.run(play())
