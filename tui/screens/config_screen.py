"""The config of a run, with its plan, sources, provenance and notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import tomli_w
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from distrain.runners import formatting
from distrain.runners.errors import DistrainError
from distrain.runners.records.reader import Record
from distrain.tui import keymap
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.key_bar import KeyBar

NAME_WIDTH = 15  # cells


class ConfigScreen(AppScreen):
    """Show the page as it is now; it does not change while the run continues."""

    HELP = (
        "Notes, config, plan and provenance of the run, and where a script's figures come from. "
        "{app.copy} copies the config as TOML."
    )
    BINDINGS = [keymap.make_hidden_binding("i", "leave", "run.config")]  # noqa: RUF012

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
            self.distrain.copy(self.record.config.to_toml(), "config")
        except DistrainError as error:
            self.distrain.refuse(str(error))


def page(record: Record) -> Text:
    """Return all parts of the page, each with a heading."""
    text = Text()
    for title, lines in _parts(record):
        text.append(f"{title}\n", "bold").append_text(Text("\n").join(lines)).append("\n\n")
    return text


def _parts(record: Record) -> Iterator[tuple[str, list[Text]]]:
    state = record.state
    meta = record.meta
    about = {
        "id": record.id,
        "name": meta.name,
        "tags": ", ".join(meta.tags),
        "notes": meta.notes,
        "status": f"{state.status}: {state.reason}" if state.reason else state.status,
        "created": formatting.date(state.created),
        "resumed from": state.parent or "",
        "group": state.group,
        "command": formatting.shell_words(state.command),
        "folder": str(record.dir),
    }
    yield "Run", [_pair(name, value) for name, value in about.items() if value]
    is_script = False
    try:
        yield "Config", _toml(record.config.to_toml())
        is_script = record.config.is_script
    except DistrainError as error:
        yield "Config", [Text(str(error), "red")]
    if state.plan is not None:
        plan = msgspec.to_builtins(state.plan)
        if is_script:  # what it decides by itself is empty
            plan = {key: value for key, value in plan.items() if value or value is False}
        yield "Plan (derived from the config and the devices)", _tables(plan)
    if is_script and (sources := record.summary().get("sources")):
        yield "Sources", [_pair(figure, source) for figure, source in sources.items()]
    if state.facts is not None:
        yield "Task", _tables(state.facts)
    if state.provenance:
        yield "Provenance", _tables(state.provenance)


def _pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ".ljust(NAME_WIDTH), "dim"), value)


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
    for line in map(formatting.printable, text.strip().splitlines()):
        key, equals, value = line.partition(" = ")
        if equals:
            lines.append(Text.assemble((key, "cyan"), (" = ", "dim"), value))
        else:
            lines.append(Text(line, "bold dim" if line.startswith("[") else ""))
    return lines
