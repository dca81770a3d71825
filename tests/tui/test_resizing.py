"""Every screen has the size of the terminal, however fast that changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual import events
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
