"""Screens and dialogs whose work goes on while they are not shown, until its result was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.screen import Screen


def is_kept(app: App[Any], name: str) -> bool:
    """Return whether there is a screen of this name, shown or not."""
    return app.is_screen_installed(name)


def open_kept(
    app: App[Any],
    name: str,
    make: Callable[[], Screen[Any]],
    on_close: Callable[[Any], None] | None = None,
) -> None:
    """Show the screen that is kept under a name; make it if there is none."""
    if not is_kept(app, name):
        app.install_screen(make(), name)
    screen = app.get_screen(name)
    if screen in app.screen_stack:
        while app.screen is not screen:
            app.pop_screen()
    else:
        app.push_screen(screen, on_close)


async def discard(app: App[Any], screen: Screen[Any], name: str) -> None:
    """Remove a screen that is shown no more."""
    if is_kept(app, name) and app.get_screen(name) is screen and screen not in app.screen_stack:
        app.uninstall_screen(screen)
        await screen.remove()
