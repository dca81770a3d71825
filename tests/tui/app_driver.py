"""Waits for an app under test, and reads its messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

TIMEOUT_S = 60.0


async def until(
    pilot: Pilot[Any],
    holds: Callable[[], object],
    what: str = "",
    timeout: float = TIMEOUT_S,
) -> None:
    """Run the app until `holds` returns a true value. Fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"never {what or holds}")
        await pilot.pause(0.02)


def screen_lines(app: App[Any]) -> list[str]:
    """Return the text of the screen, line by line. Textual offers it only as SVG in public."""
    lines = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in line) for line in lines]


def messages(app: App[Any]) -> list[str]:
    """Return the notifications that the app shows. Textual has no public list of them."""
    return [notification.message for notification in app._notifications]
