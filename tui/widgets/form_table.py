"""The table of a config's fields: a line per field, and a cursor. What is typed starts an edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from textwrap import wrap
from typing import Any, NamedTuple

from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from distrain.tui import keymap
from distrain.tui.data.config_fields import Field, display_text, editable_text, next_choice
from distrain.tui.data.copying import CopyValue
from distrain.tui.data.draft import Draft
from distrain.tui.data.jump import JumpTarget
from distrain.tui.widgets.text_pane import TextPane

CHANGED, WRONG = "•", "✘"
ABOUT_FROM = 78  # cells from which descriptions are shown next to the values
NOT_TYPED = " ?/:"  # no value begins with these, but a path does with a slash
VALUE = 22  # cells of a value with a description after it


class FormLine(NamedTuple):
    """A line of the table. Headings and problems have no field, so the cursor skips them."""

    text: Text
    field: Field | None = None


class FormTable(TextPane):
    """Shows fields of a draft and posts what the user does with the one under the cursor."""

    HELP = (
        "The fields of the run. Enter edits the field under the cursor or lists its values; typing "
        "edits it too, so actions with a letter as key work in the list of presets only. Space "
        "switches on and off, or goes to the next value of a list. • marks what differs from the "
        "preset, with its value; {launch.reset} resets the field. ✘ marks values that cannot run."
    )
    DEFAULT_CSS = """
    FormTable {
        border: none; padding: 0; height: 1fr;
        &:focus { border: none; }
        & > .form-table--cursor {
            background: $block-cursor-blurred-background;
            color: $block-cursor-blurred-foreground;
        }
        &:focus > .form-table--cursor {
            background: $block-cursor-background; color: $block-cursor-foreground;
        }
    }
    """
    COMPONENT_CLASSES = {"form-table--cursor"}  # noqa: RUF012
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up", "move(-1)"),
        keymap.make_hidden_binding("down", "move(1)"),
        keymap.make_hidden_binding("pageup", "page(-1)"),
        keymap.make_hidden_binding("pagedown", "page(1)"),
        keymap.make_hidden_binding("home", "move(-999)"),
        keymap.make_hidden_binding("end", "move(999)"),
        keymap.make_hidden_binding("enter", "edit"),
        keymap.make_hidden_binding("space", "switch"),
    ]

    class Moved(Message):
        """The cursor moved to another field."""

    class Wanted(Message):
        """The user edits a field; `typed` is the text that was typed already."""

        def __init__(self, field: Field, typed: str | None = None) -> None:
            super().__init__()
            self.field = field
            self.typed = typed

    class Picked(Message):
        """A key press gave a field a value."""

        def __init__(self, field: Field, value: Any) -> None:
            super().__init__()
            self.field = field
            self.value = value

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draft: Draft | None = None
        self._fields: Sequence[Field] = ()
        self._problems: Mapping[str, str] = {}
        self._rows: list[FormLine] = []
        self._cursor = 0

    # --- what it shows --------------------------------------------------------------------------

    def show(
        self, draft: Draft | None, fields: Sequence[Field], problems: Mapping[str, str]
    ) -> None:
        """Show these fields; the cursor stays on its field if that is still listed."""
        key = self.field.key if self.field else ""
        self._draft = draft
        self._fields = fields
        self._problems = problems
        self._lay_out()
        self._cursor = self._line_of(key)
        self._reveal()
        self.post_message(self.Moved())

    def _lay_out(self) -> None:
        content = self._draft, self._fields, self._problems, self.width
        self._rows = form_lines(*content)
        if len(self._rows) > self.height:
            self._rows = form_lines(*content, spaced=False)
        self.put([row.text for row in self._rows])
        self.refresh()

    def _paint(self) -> None:
        key = self.field.key if self.field else ""
        self._lay_out()
        self._cursor = self._line_of(key)

    @property
    def field(self) -> Field | None:
        """Return the field under the cursor."""
        return self._rows[self._cursor].field if self._cursor < len(self._rows) else None

    @property
    def value_at(self) -> tuple[int, int]:
        """Return the visible column and line of the value under the cursor."""
        column = 3 + _name_width(self._fields)
        return column, self._cursor - round(self.scroll_y)

    def _line_of(self, key: str) -> int:
        """Return the line of a field, or of the first field."""
        keys = {row.field.key: line for line, row in enumerate(self._rows) if row.field}
        return keys.get(key, min(keys.values(), default=0))

    def _lines_with_fields(self) -> list[int]:
        return [line for line, row in enumerate(self._rows) if row.field]

    def render_line(self, y: int) -> Strip:
        line = self._row(y)
        style = self.rich_style
        if line >= len(self._rows):
            return Strip.blank(self.size.width, style)
        text = self._rows[line].text
        if line == self._cursor:
            # Colours are not legible on the cursor of every theme.
            text = Text(text.plain)
            style = self.get_component_rich_style("form-table--cursor")
        strip = Strip(text.render(self.app.console))
        return strip.adjust_cell_length(self.size.width).apply_style(style)

    def copy_values(self) -> list[CopyValue]:
        """Return the value and the key of the field under the cursor."""
        field = self.field
        if field is None or self._draft is None:
            return []
        value = editable_text(self._draft.get(field.key), field)
        return [
            CopyValue(f"value of {field.key}", value),
            CopyValue("as --set takes it", f"{field.key}={value}"),
            CopyValue("key", field.key),
        ]

    def jump_targets(self) -> list[JumpTarget]:
        """Return the visible fields."""

        def go(line: int) -> None:
            self.screen.set_focus(self)
            self._go_to(line)

        top = self.content_region.y - round(self.scroll_y)
        return [
            JumpTarget(self.content_region.x, top + line, partial(go, line))
            for line in self._lines_with_fields()
            if self.content_region.y <= top + line < self.content_region.bottom
        ]

    # --- the cursor -----------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        lines = self._lines_with_fields()
        if not lines:
            return
        index = lines.index(self._cursor) + by
        self._go_to(lines[max(0, min(index, len(lines) - 1))])

    def action_page(self, direction: int) -> None:
        wanted = self._cursor + direction * max(self.height - 1, 1)
        lines = self._lines_with_fields()
        if lines:
            self._go_to(min(lines, key=lambda line: abs(line - wanted)))

    def go_to(self, key: str) -> None:
        """Move the cursor to a field, if it is listed."""
        self._go_to(self._line_of(key))

    def _go_to(self, line: int) -> None:
        self._cursor = line
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        """Scroll to the field with the heading above it and the problem below."""
        first, end = self._cursor, self._cursor + 1
        while first > 0 and not self._rows[first - 1].field:
            first -= 1
        while end < len(self._rows) and not self._rows[end].field:
            end += 1
        first = self._cursor if end - first > self.height else first
        self.scroll_to_region(Region(0, first, 1, end - first), animate=False, force=True)

    # --- keys and mouse -------------------------------------------------------------------------

    def action_edit(self) -> None:
        if (field := self.field) is None or self._draft is None:
            return
        if field.kind == "bool":
            self.action_switch()
        else:
            self.post_message(self.Wanted(field))

    def action_switch(self) -> None:
        """Give a switch its other value and a choice its next one; edit any other field."""
        if (field := self.field) is None or self._draft is None:
            return
        value = self._draft.get(field.key)
        if field.kind == "bool":
            self.post_message(self.Picked(field, not value))
        elif field.kind == "choice":
            self.post_message(self.Picked(field, next_choice(field, value)))
        else:
            self.action_edit()

    def on_key(self, event: events.Key) -> None:
        if self.field and self.check_consume_key(event.key, event.character):
            event.stop()
            event.prevent_default()
            self.post_message(self.Wanted(self.field, event.character))

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Return whether a key starts an edit with its character. Then no binding has it, and the
        footer does not show it.
        """
        if self.field is None or character is None or not character.isprintable():
            return False
        is_path = character == "/" and self.field.kind == "text"
        return is_path or character not in NOT_TYPED

    def on_click(self, event: events.Click) -> None:
        line = self._row(event.get_content_offset_capture(self).y)
        if line < len(self._rows) and self._rows[line].field:
            was_under_cursor = line == self._cursor and self.has_focus
            self._go_to(line)
            if was_under_cursor or event.chain > 1:
                self.action_edit()


# --- lines --------------------------------------------------------------------------------------


def form_lines(
    draft: Draft | None,
    fields: Sequence[Field],
    problems: Mapping[str, str],
    width: int,
    spaced: bool = True,
) -> list[FormLine]:
    """Return a heading per config table, a line per field, and problems below their fields.

    `spaced` puts an empty line before each heading. `width` is 0 before the first layout: then
    fields are not cut.
    """
    rows: list[FormLine] = []
    if draft is None:
        return rows
    names = _name_width(fields)
    for group, members in groupby(fields, key=lambda field: field.group):
        if rows and spaced:
            rows.append(FormLine(Text()))
        rows.append(FormLine(Text.assemble((group, "bold dim"))))
        for field in members:
            wrong = problems.get(field.key, "")
            rows.append(FormLine(_line(draft, field, names, width, bool(wrong)), field))
            rows += [FormLine(line) for line in _problem_lines(wrong, width)]
    return rows


def _name_width(fields: Sequence[Field]) -> int:
    return max((len(field.name) for field in fields), default=0)


def _line(draft: Draft, field: Field, names: int, width: int, wrong: bool) -> Text:
    value = draft.get(field.key)
    changed = draft.changed(field.key)
    mark = WRONG if wrong else CHANGED if changed else " "
    colour = "red" if wrong else "cyan"
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", f"bold {colour}").append(
        field.name.ljust(names + 1), "bold" if changed else ""
    )
    start = len(line)
    line.append(
        display_text(value, field),
        colour if wrong or changed else "" if editable_text(value) else "dim",
    )
    if changed:
        line.append(f"  was {display_text(draft.preset_value(field.key), field)}", "dim")
    if width >= ABOUT_FROM:
        line.append(" " * max(VALUE - (len(line) - start), 2)).append(field.about, "dim")
    if width:
        line.truncate(width, overflow="ellipsis")
    return line


def _problem_lines(text: str, width: int) -> list[Text]:
    if not text:
        return []
    return [Text.assemble((f"    {line}", "red")) for line in wrap(text, max(width - 4, 16))]
