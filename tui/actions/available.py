"""Which actions of the keymap can be done on the screen now, and doing one of them.

Screens and panes are asked, so that new ones need no entry anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from textual import actions
from textual.dom import DOMNode
from textual.screen import Screen

from distrain.tui import keymap
from distrain.tui.base_app import BaseApp
from distrain.tui.data.palette import PaletteEntry
from distrain.tui.keymap import Key

if TYPE_CHECKING:
    from distrain.tui.screens.app_screen import AppScreen

UNLISTED = ("app.palette", "app.back")
THEMES = "Themes"
THEME_ID = "theme."


class Target(NamedTuple):
    """An action as Textual writes it, and the node that does it."""

    action: str
    node: DOMNode


def find_target(screen: Screen[Any], key: Key) -> Target | None:
    """Return who does an action: where its key works now, else a visible pane that has it."""
    for active in screen.active_bindings.values():
        if active.binding.id == key.id:
            return Target(active.binding.action, active.node) if active.enabled else None
    _, name, parameters = actions.parse(key.action)
    for pane in screen.query("*"):
        if pane.region and any(binding.id == key.id for _, binding in pane._bindings):
            return Target(key.action, pane) if pane.check_action(name, parameters) else None
    return None


def list_keys(screen: Screen[Any]) -> Iterator[Key]:
    """Yield the actions of the screen and then those of the app that can be done, or that the
    screen gives a reason against.
    """
    for group in (*getattr(screen, "KEYS", ()), keymap.EVERYWHERE):
        for key in keymap.KEYMAP:
            if key.group == group and key.id not in UNLISTED and find_target(screen, key):
                yield key


def list_entries(app: BaseApp) -> list[PaletteEntry]:
    """Return what the palette lists: actions by context, and themes."""
    screen = cast("AppScreen", app.screen)
    entries = [
        PaletteEntry(
            key.id,
            keymap.TITLES[key.group],
            key.label,
            key.help,
            app.key(key.id),
            screen.obstacle(key.id),
        )
        for key in list_keys(screen)
    ]
    for name, theme in app.available_themes.items():
        kind = "dark" if theme.dark else "light"
        current = " (current)" if name == app.theme else ""
        entries.append(
            PaletteEntry(f"{THEME_ID}{name}", THEMES, name, f"Use this {kind} theme.{current}")
        )
    return entries


async def perform(app: BaseApp, id: str) -> None:
    """Do an action of the keymap, or change to a theme."""
    if id.startswith(THEME_ID):
        app.theme = id.removeprefix(THEME_ID)
        return
    screen = cast("AppScreen", app.screen)
    target = find_target(screen, keymap.BY_ID[id])
    if reason := screen.obstacle(id):
        app.refuse(reason)
    elif target is None:
        app.refuse("the pane for this action is not shown")
    else:
        await app.run_action(target.action, target.node)
