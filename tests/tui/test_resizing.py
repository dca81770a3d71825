"""Every screen has the size of the terminal, however fast that changes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual import events, timer
from textual.geometry import Size

from distrain.tui.app import DistrainApp
from distrain.tui.screens.launch_screen import LaunchScreen

from .app_driver import until

NORMAL = Size(120, 36)


def test_a_late_message_with_an_earlier_size_changes_nothing(runs_dir: Path) -> None:
    async def play() -> None:
        app = DistrainApp(runs_dir)
        async with app.run_test(size=NORMAL) as pilot:
            await until(pilot, lambda: isinstance(app.screen, LaunchScreen), "opened")
            earlier = Size(400, 100)
            app.screen.post_message(events.Resize(earlier, earlier))
            await pilot.pause(0.1)
            assert app.screen.size == NORMAL
            assert app.screen.has_class("-normal", "-medium")

    asyncio.run(play())


def test_a_process_that_pauses_as_a_timer_starts_still_notices_a_new_size_and_builds_a_preview(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: set[object] = set()

    def get_time() -> float:
        """Return the time, for each timer a second late from the second time on."""
        task = asyncio.current_task()
        pause = float(task in begun)
        begun.add(task)
        return time.monotonic() + pause

    monkeypatch.setattr(timer, "_time", SimpleNamespace(get_time=get_time))

    async def play() -> None:
        app = DistrainApp(runs_dir)
        async with app.run_test(size=NORMAL) as pilot:
            screen = app.screen
            assert isinstance(screen, LaunchScreen)
            await until(pilot, lambda: screen.preview.is_current, "built")
            larger = Size(160, 50)
            app.post_message(events.Resize(larger, larger))
            await until(pilot, lambda: screen.size == larger, "resized")

    asyncio.run(play())
