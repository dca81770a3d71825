"""What a run was launched with: its config, plan and provenance, and what was noted of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec
import tomli_w
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from runners import words
from runners.errors import DistrainError
from runners.record import Record
from tui import keymap
from tui.screens.base import AppScreen
from tui.widgets.key_bar import KeyBar

LABEL = 15  # cells of a name


class ConfigScreen(AppScreen):
    """A page to read; it does not follow the run."""

    HELP = (
        "Notes, config, plan and provenance of the run. {app.copy} copies the config as a preset."
    )
    BINDINGS = [keymap.hidden("i", "leave", "run.config")]  # noqa: RUF012

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record
        self._page = page(record)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page"):
            yield Static(self._page)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#page").border_title = Content(self.record.name or self.record.id)
        self.query_one("#page").focus()

    def action_copy(self) -> None:
        try:
            self.distrain.copy(self.record.config.to_toml(), "the config")
        except DistrainError as error:
            self.distrain.refuse(str(error))


def page(record: Record) -> Text:
    """Everything, a heading above each part."""
    text = Text()
    for title, lines in _parts(record):
        text.append(f"{title}\n", "bold").append_text(Text("\n").join(lines)).append("\n\n")
    return text


def _parts(record: Record) -> Iterator[tuple[str, list[Text]]]:
    state, meta = record.state, record.meta
    about = {
        "id": record.id,
        "name": meta.name,
        "tags": ", ".join(meta.tags),
        "notes": meta.notes,
        "status": f"{state.status}: {state.reason}" if state.reason else state.status,
        "created": words.date(state.created),
        "resumed from": state.parent or "",
        "command": shlex.join(state.command),
        "folder": str(record.dir),
    }
    yield "Run", [_pair(name, value) for name, value in about.items() if value]
    try:
        yield "Config", _toml(record.config.to_toml())
    except DistrainError as error:
        yield "Config", [Text(str(error), "red")]
    if state.plan is not None:
        yield "Plan, which follows from the config and the devices", _tables(state.plan)
    if state.facts is not None:
        yield "Task", _tables(state.facts)
    if state.provenance:
        yield "Provenance", _tables(state.provenance)


def _pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ".ljust(LABEL), "dim"), value)


def _tables(thing: Any) -> list[Text]:
    return _toml(tomli_w.dumps(_without_none(msgspec.to_builtins(thing))))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _toml(text: str) -> list[Text]:
    lines = []
    for line in text.strip().splitlines():
        key, equals, value = line.partition(" = ")
        if equals:
            lines.append(Text.assemble((key, "cyan"), (" = ", "dim"), value))
        else:
            lines.append(Text(line, "bold dim" if line.startswith("[") else ""))
    return lines
