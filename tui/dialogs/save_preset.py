"""The dialogs that save a draft as a preset of the user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from textual.app import App

from distrain.runners.config import presets
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.tui.data.draft import Draft
from distrain.tui.dialogs.dialog import Answer, ChoiceDialog
from distrain.tui.dialogs.prompt import PromptDialog


def save_as(
    app: App[Any],
    draft: Draft,
    presets_by_name: Mapping[str, Preset],
    on_saved: Callable[[str, RunConfig], None],
) -> None:
    """Ask for a name, and again before a file is replaced; save the draft and call `on_saved` with
    the name and the config that were saved.
    """

    def named(name: str | None) -> None:
        if name is None:
            return
        path = presets.user_folder() / f"{name}.toml"
        if os.path.lexists(path):  # another app may have saved it
            save = partial(_save, app, draft, name, on_saved, force=True)
            _ask_to_replace(app, name, path, save)
        else:
            _save(app, draft, name, on_saved, force=False)

    preset = presets_by_name.get(draft.name)
    is_own = preset is not None and preset.origin == "yours"
    value = draft.name if is_own else f"my-{draft.stem}"
    text = f"The file is saved in {presets.user_folder()}."
    check = partial(find_problem, presets_by_name)
    app.push_screen(PromptDialog("Save as a preset", text, value, check), named)


def find_problem(presets_by_name: Mapping[str, Preset], name: str) -> str:
    """Return why a preset cannot have this name, or an empty string."""
    if not name:
        return "enter a name"
    if not re.fullmatch(presets.NAME, name) or name.endswith(".toml"):
        return "use letters, digits, '-', '_' and '.', beginning with a letter or digit"
    if len(name) > presets.MOST_CHARACTERS:
        return f"use at most {presets.MOST_CHARACTERS} characters"
    if name in presets_by_name and presets_by_name[name].origin == "built-in":
        return f"{name} is a built-in preset; choose another name"
    return ""


def _ask_to_replace(app: App[Any], name: str, path: Path, save: Callable[[], None]) -> None:
    def answer(choice: str | None) -> None:
        if choice:
            save()

    text = f"A preset with this name exists: {path}\nReplacing it removes the comments in it."
    answers = [Answer("yes", "Replace", "warning", "r")]
    app.push_screen(ChoiceDialog(f"Replace {name}?", text, answers), answer)


def _save(
    app: App[Any],
    draft: Draft,
    name: str,
    on_saved: Callable[[str, RunConfig], None],
    force: bool,
) -> None:
    try:
        config = draft.config
        if name != draft.name:
            config = presets.describe(config, draft.label, draft.base)
        path = presets.save_preset(name, config, force=force)
    except ConfigError as error:
        app.notify(str(error), severity="warning", timeout=8)
    else:
        app.notify(f"saved {path}")
        on_saved(name, config)
