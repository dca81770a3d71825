"""The property sheet of a config: a line for each field, a cursor, keys that change values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any, NamedTuple

from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from tui import keymap
from tui.data.form import Draft, Field, as_typed, neighbour, shown
from tui.widgets.text_pane import TextPane

CHANGED, WRONG = "•", "✘"
ABOUT_FROM = 78  # cells of width that leave room for descriptions beside the values
VALUE = 22  # cells of a value where something stands behind it


class Row(NamedTuple):
    """A line; headings and complaints have no field of their own to stand on."""

    text: Text
    field: Field | None = None


class Sheet(TextPane):
    """`show` gives it a draft and the fields to list; it keeps the cursor and nothing else."""

    HELP = (
        "The fields of the run. Enter edits the one under the cursor, a digit begins a number at "
        "once; left and right go through choices, space switches on and off. • marks what differs "
        "from the preset, ✘ what cannot run."
    )
    DEFAULT_CSS = """
    Sheet {
        border: none; padding: 0; height: 1fr;
        &:focus { border: none; }
        & > .sheet--cursor {
            background: $block-cursor-blurred-background;
            color: $block-cursor-blurred-foreground;
        }
        &:focus > .sheet--cursor {
            background: $block-cursor-background; color: $block-cursor-foreground;
        }
    }
    """
    COMPONENT_CLASSES = {"sheet--cursor"}  # noqa: RUF012
    BINDINGS = [  # noqa: RUF012
        keymap.hidden("up,k", "move(-1)"),
        keymap.hidden("down,j", "move(1)"),
        keymap.hidden("pageup", "page(-1)"),
        keymap.hidden("pagedown", "page(1)"),
        keymap.hidden("home", "move(-999)"),
        keymap.hidden("end", "move(999)"),
        keymap.hidden("enter", "edit"),
        keymap.hidden("space", "switch"),
        keymap.hidden("left", "step(-1)"),
        keymap.hidden("right", "step(1)"),
    ]

    class Moved(Message):
        """The cursor stands on another field."""

    class Wanted(Message):
        """A field is to be edited; `typed` is what has been typed already."""

        def __init__(self, field: Field, typed: str | None = None) -> None:
            super().__init__()
            self.field, self.typed = field, typed

    class Picked(Message):
        """A field got a value by a key."""

        def __init__(self, field: Field, value: Any) -> None:
            super().__init__()
            self.field, self.value = field, value

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draft: Draft | None = None
        self._fields: Sequence[Field] = ()
        self._complaints: Mapping[str, str] = {}
        self._rows: list[Row] = []
        self._cursor = 0

    # --- what it shows --------------------------------------------------------------------------

    def show(
        self, draft: Draft | None, fields: Sequence[Field], complaints: Mapping[str, str]
    ) -> None:
        """The cursor stays on its field where that is still there."""
        key = self.field.key if self.field else ""
        self._draft, self._fields, self._complaints = draft, fields, complaints
        self._lay_out()
        self._cursor = self._line_of(key)
        self._reveal()
        self.post_message(self.Moved())

    def _lay_out(self) -> None:
        what = self._draft, self._fields, self._complaints, self.width
        self._rows = rows_of(*what)
        if len(self._rows) > self.height:
            self._rows = rows_of(*what, airy=False)
        self.put([row.text for row in self._rows])
        self.refresh()

    def _paint(self) -> None:
        key = self.field.key if self.field else ""
        self._lay_out()
        self._cursor = self._line_of(key)

    @property
    def field(self) -> Field | None:
        """The one under the cursor."""
        return self._rows[self._cursor].field if self._cursor < len(self._rows) else None

    @property
    def value_at(self) -> tuple[int, int]:
        """Column and line of the value under the cursor, as it is scrolled now."""
        column = 3 + _name_width(self._fields)
        return column, self._cursor - round(self.scroll_y)

    def _line_of(self, key: str) -> int:
        """Of a field, or of the first one there is."""
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
            # Colours of its own would not be seen on every theme's cursor.
            text, style = Text(text.plain), self.get_component_rich_style("sheet--cursor")
        strip = Strip(text.render(self.app.console))
        return strip.adjust_cell_length(self.size.width).apply_style(style)

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
        """Put the cursor on a field, if it is listed."""
        self._go_to(self._line_of(key))

    def _go_to(self, line: int) -> None:
        self._cursor = line
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        """Scroll so that the field is seen, with the heading above it or the complaint below."""
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
        if (field := self.field) and self._draft and field.kind == "bool":
            self.post_message(self.Picked(field, not self._draft.get(field.key)))

    def action_step(self, direction: int) -> None:
        if (field := self.field) is None or self._draft is None:
            return
        if field.kind == "choice":
            value = neighbour(field, self._draft.get(field.key), direction)
            self.post_message(self.Picked(field, value))
        elif field.kind == "bool":
            self.action_switch()

    def on_key(self, event: events.Key) -> None:
        """Digits begin a number. Letters do not begin a text: they are keys of the screen."""
        field, typed = self.field, event.character
        if field and field.kind == "number" and typed and typed in "0123456789.-":
            event.stop()
            self.post_message(self.Wanted(field, typed))

    def on_click(self, event: events.Click) -> None:
        line = self._row(event.get_content_offset_capture(self).y)
        if line < len(self._rows) and self._rows[line].field:
            again = line == self._cursor and self.has_focus
            self._go_to(line)
            if again or event.chain > 1:
                self.action_edit()


# --- lines --------------------------------------------------------------------------------------


def rows_of(
    draft: Draft | None,
    fields: Sequence[Field],
    complaints: Mapping[str, str],
    width: int,
    airy: bool = True,
) -> list[Row]:
    """A heading for each table of the config, a line for each field, complaints below theirs.

    `airy` puts an empty line before each heading.
    """
    rows: list[Row] = []
    if draft is None:
        return rows
    names = _name_width(fields)
    for group, members in groupby(fields, key=lambda field: field.group):
        rows += [Row(Text())] if rows and airy else []
        rows.append(Row(Text.assemble((group, "bold dim"))))
        for field in members:
            wrong = complaints.get(field.key, "")
            rows.append(Row(_line(draft, field, names, width, bool(wrong)), field))
            rows += [Row(line) for line in _complaint(wrong, width)]
    return rows


def _name_width(fields: Sequence[Field]) -> int:
    return max((len(field.name) for field in fields), default=0)


def _line(draft: Draft, field: Field, names: int, width: int, wrong: bool) -> Text:
    value, changed = draft.get(field.key), draft.changed(field.key)
    mark = WRONG if wrong else CHANGED if changed else " "
    colour = "red" if wrong else "cyan"
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", f"bold {colour}").append(field.name.ljust(names + 1), "bold" * changed)
    start = len(line)
    line.append(
        shown(value, field), colour if wrong or changed else "" if as_typed(value) else "dim"
    )
    if changed:
        line.append(f"  was {shown(draft.preset_value(field.key), field)}", "dim")
    if width >= ABOUT_FROM:
        line.append(" " * max(VALUE - (len(line) - start), 2)).append(field.about, "dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _complaint(text: str, width: int) -> list[Text]:
    if not text:
        return []
    return [Text.assemble((f"    {line}", "red")) for line in wrap(text, max(width - 4, 16))]
