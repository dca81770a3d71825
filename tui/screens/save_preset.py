"""Asks for a name and keeps a draft under it, as a preset of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from textual.app import App

from runners import presets
from runners.config import RunConfig
from runners.errors import ConfigError
from runners.presets import Preset
from tui.data.form import Draft
from tui.screens.dialogs import Choice, Prompt


def save_as(
    app: App[Any],
    draft: Draft,
    known: Mapping[str, Preset],
    done: Callable[[str, RunConfig], None],
) -> None:
    """Ask for the name, and once more where that replaces a file; `done` hears what was saved."""

    def named(name: str | None) -> None:
        if name is None:
            return
        if name in known:
            _ask_to_replace(app, known[name], partial(_save, app, draft, name, done))
        else:
            _save(app, draft, name, done, force=False)

    own = draft.name in known and known[draft.name].origin == "yours"
    text = f"Its file goes to {presets.user_folder()}."
    value = draft.name if own else f"my-{draft.name}"
    app.push_screen(Prompt("Save as a preset", text, value, partial(unfit, known)), named)


def unfit(known: Mapping[str, Preset], name: str) -> str:
    """Why a preset cannot have this name; nothing where it can."""
    if not name:
        return "it needs a name"
    if not re.fullmatch(presets.NAME, name) or name.endswith(".toml"):
        return "use letters, digits, '-', '_' and '.', beginning with a letter or digit"
    if name in known and known[name].origin == "built-in":
        return f"{name} is a built-in preset; take another name"
    return ""


def _ask_to_replace(app: App[Any], preset: Preset, save: Callable[..., None]) -> None:
    def answer(how: str | None) -> None:
        if how:
            save(force=True)

    text = f"You have a preset of that name: {preset.path}"
    answers = [("yes", "Replace it", "warning")]
    app.push_screen(Choice(f"Replace {preset.name}?", text, answers), answer)


def _save(
    app: App[Any], draft: Draft, name: str, done: Callable[[str, RunConfig], None], force: bool
) -> None:
    try:
        config = draft.config
        if name != draft.name:
            config = presets.described(config, draft.name, draft.base)
        path = presets.save_preset(name, config, force=force)
    except ConfigError as error:
        app.notify(str(error), severity="warning", timeout=8)
    else:
        app.notify(f"saved {path}")
        done(name, config)
