"""The form of a run: the table of fields, a line editor over it, and help on the current field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from distrain.tui import keymap
from distrain.tui.data import form
from distrain.tui.data.config_fields import (
    NAMED_KINDS,
    Field,
    complete,
    display_text,
    editable_text,
    known_names,
    parse_typed,
    suggestions,
    used_fields,
    without_open_end,
)
from distrain.tui.data.draft import Draft, find_problem
from distrain.tui.data.typed_text import is_much
from distrain.tui.widgets.form_table import FormTable

OTHER = "other …"
UNSET = "unset"
SWEEP = "a list, as in 0.1, 0.05, makes a sweep"
HINTS = {
    "bool": "space switches it on or off",
    "choice": "enter lists all values, space takes the next, typing finds one",
    "number": f"type a number; {SWEEP}",
    "text": "type, or press enter to edit",
    "devices": 'type, or press enter to edit: "0,1", "cpu:4", "all"',
    "list": 'type, or press enter to edit: ["--exclusive"]',
    "table": "type, or press enter to edit: {hidden = [256, 128]}",
}


class FormPane(Vertical):
    """Shows the fields of a draft, and posts `Changed` when a field gets a value."""

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    FormPane {
        layers: base editor;
        border: round $foreground 30%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        padding: 0 1;
        &:focus-within { border: round $accent; border-title-color: $text; }
        & > #filter { height: 1; margin: 0 0 1 0; display: none; }
        & > #editor { layer: editor; position: absolute; height: 1; display: none; padding: 0 1; }
        & > #about { height: 6; }
        &.-filtering > #filter { display: block; }
        &.-empty > FormTable { display: none; }
        &.-empty > #about { height: 1fr; }
        &.-editing > #editor { display: block; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("escape", "cancel"),
        keymap.make_hidden_binding("tab,down", "leave(1)"),
        keymap.make_hidden_binding("shift+tab,up", "leave(-1)"),
    ]

    class Changed(Message):
        """The field `key` of the preset `name` gets a valid value."""

        def __init__(self, name: str, key: str, value: Any) -> None:
            super().__init__()
            self.name = name
            self.key = key
            self.value = value

    class Committed(Message):
        """Every value that was typed before has been posted: `act` may use the draft."""

        def __init__(self, act: Callable[[], None]) -> None:
            super().__init__()
            self.act = act

    class OptionsWanted(Message):
        """The user wants to pick the value of a field from a list; `choose` takes the answer."""

        def __init__(
            self, name: str, field: Field, options: list[tuple[str, str]], current: str
        ) -> None:
            super().__init__()
            self.name = name
            self.field = field
            self.options = options
            self.current = current

    class DiscardWanted(Message):
        """The user leaves an edit in which much was typed; `leave_line` discards it."""

        def __init__(self, field: Field, text: str) -> None:
            super().__init__()
            self.field = field
            self.text = text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draft: Draft | None = None
        self._editing: Field | None = None
        self._problems: Mapping[str, str] = {}
        self._everything = False
        self._problem_of_typed = ""
        self._empty_text = ""

    def compose(self) -> ComposeResult:
        yield Input(id="filter", placeholder="words in name or description", compact=True)
        yield FormTable(id="form-table")
        yield Static(id="about", markup=False)
        yield Input(id="editor", compact=True)

    def on_mount(self) -> None:
        self._table = self.query_one(FormTable)
        self._editor = self.query_one("#editor", Input)
        self._filter = self.query_one("#filter", Input)
        self.watch(self._table, "scroll_y", self._place_editor, init=False)

    # --- display ------------------------------------------------------------------------------

    def show(
        self, draft: Draft | None, problems: Mapping[str, str], title: str, empty_text: str = ""
    ) -> None:
        """Show a draft with its problems by key; without a draft show `empty_text`."""
        if draft is None or self._draft is None or draft.name != self._draft.name:
            self._stop_editing(back=False)
        self._draft = draft
        self._problems = problems
        self.border_title = Content(title)
        self._empty_text = empty_text
        self.set_class(draft is None, "-empty")
        self._paint()

    def _paint(self) -> None:
        fields: list[Field] = []
        if self._draft is not None:
            fields = form.visible_fields(
                self._draft,
                everything=self._everything,
                words=self._filter.value,
                with_problems=self._problems,
            )
        problems = dict(self._problems)
        if self._editing:
            problems.pop(self._editing.key, None)
            if self._problem_of_typed:
                problems[self._editing.key] = self._problem_of_typed
        self._table.show(self._draft, fields, problems)
        self.border_subtitle = self._field_count(self._draft, len(fields)) if self._draft else ""
        self._describe_field()
        self.call_after_refresh(self._place_editor)

    def _field_count(self, draft: Draft, shown: int) -> str:
        every = len(used_fields(draft.config))
        if self._filter.value:
            return f"{shown} of {every} fields · esc shows more"
        count = f"all {every}" if shown == every else f"{shown}"
        other = "fewer" if shown == every else "all"
        # The last key of an action is one that works while the table has the focus.
        key = self.app.key("launch.all").split()[-1]  # type: ignore[attr-defined]
        return f"{count} fields · {key} shows {other}"

    def on_form_table_moved(self) -> None:
        self._describe_field()

    def on_resize(self) -> None:
        self.call_after_refresh(self._place_editor)

    def _describe_field(self) -> None:
        field = self._table.field
        draft = self._draft
        text = Text()
        if field and draft:
            text.append(field.key, "bold").append(f"  {field.wanted}", "dim")
            text.append(f"\n{field.about}\n" if field.about else "\n")
            text.append(self._hint(field, draft), "dim")
        elif draft:
            text.append("no field contains all these words", "dim")
        else:
            text.append(self._empty_text)
        self.query_one("#about", Static).update(text)

    def _hint(self, field: Field, draft: Draft) -> str:
        if self._editing:
            unset = " · leave it empty to unset it" if field.optional else ""
            completes = " · → completes" if suggestions(field) else ""
            sweep = f" · {SWEEP}" if field.kind == "number" else ""
            return f"enter saves · esc cancels{sweep}{completes}{unset}"
        hint = HINTS[field.kind]
        if field.key in NAMED_KINDS:
            hint = "enter lists known names, or type one"
        if draft.changed(field.key):
            before = display_text(draft.preset_value(field.key), field)
            hint += keymap.insert_keys(" · {launch.reset} resets to ", self.app) + before
        return hint

    # --- editing --------------------------------------------------------------------------------

    def on_form_table_picked(self, event: FormTable.Picked) -> None:
        if self._draft:
            self.post_message(self.Changed(self._draft.name, event.field.key, event.value))

    def on_form_table_wanted(self, event: FormTable.Wanted) -> None:
        field = event.field
        draft = self._draft
        if draft is None:
            return
        if self._editing:
            self._add_late_key(event.typed)
            return
        if event.typed is not None:
            self._edit(field, event.typed)
            return
        options = [(name, _option_text(name, about)) for name, about in known_names(field.key)]
        if field.kind == "choice":
            options = [(name, name) for name in field.choices]
            options += [(UNSET, UNSET)] if field.optional else []
        if options:
            self._list_options(field, draft, options)
        else:
            self._edit(field)

    def _list_options(self, field: Field, draft: Draft, options: list[tuple[str, str]]) -> None:
        if field.open or field.kind != "choice":
            options = [*options, (OTHER, OTHER)]
        current = draft.get(field.key) or UNSET
        self.post_message(self.OptionsWanted(draft.name, field, options, current))

    def choose(self, name: str, field: Field, option: str | None) -> None:
        """Give the field of the preset `name` the picked option; None if nothing was picked."""
        if option == OTHER:
            self._edit(field)
        elif option is not None:
            value = None if option == UNSET else option
            self.post_message(self.Changed(name, field.key, value))

    def _edit(self, field: Field, typed: str | None = None) -> None:
        if self._draft is None:
            return
        self._editing = field
        text = editable_text(self._draft.get(field.key), field) if typed is None else typed
        self.add_class("-editing")
        with self.prevent(Input.Changed):
            self._editor.value = text
        self._editor.select_on_focus = typed is None  # a selected digit would be overtyped
        self._editor.placeholder = UNSET if field.optional else ""
        names = suggestions(field)
        self._editor.suggester = SuggestFromList(names, case_sensitive=False) if names else None
        self._editor.cursor_position = len(text)
        self._check()
        self._editor.focus()

    def _add_late_key(self, typed: str | None) -> None:
        """Handle a key that arrived before the editor had the focus, as with fast typing."""
        if typed is None:
            self.commit()
        else:
            self._editor.insert_text_at_cursor(typed)

    def _place_editor(self, _: object = None) -> None:
        if self._editing:
            column, line = self._table.value_at
            top = self._table.region.y - self.content_region.y
            self._editor.offset = (column - 1, top + line)
            self._editor.styles.width = max(self._table.width - column + 1, 8)

    def _check(self, is_final: bool = False) -> None:
        """Show what is wrong with the typed text below the field.

        Until it is final, a comma at its end is not: another value may follow.
        """
        field, draft = self._editing, self._draft
        if field and draft:
            text = self._typed_value(field, draft)
            text = text if is_final else without_open_end(field, text)
            self._problem_of_typed = find_problem(draft, field, text)
            self._paint()

    def _typed_value(self, field: Field, draft: Draft) -> str:
        """Return what was typed, completed where it is no value itself."""
        text = self._editor.value
        return complete(field, text) if find_problem(draft, field, text) else text

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self._filter:
            self._paint()
        else:
            self._check()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self._filter:
            self._table.focus()
        else:
            self.commit()

    def on_input_blurred(self, event: Input.Blurred) -> None:
        # A click elsewhere, but not in another window, commits what was typed if that is valid.
        left = event.input is self._editor and not self._editor.has_focus and self.app.app_focus
        if left and self._editing and not self.commit(back=False):
            self._stop_editing(back=False)

    def commit(self, back: bool = True) -> bool:
        """Give the field the typed value, and return False if it is invalid.

        `back` moves the focus back to the table.
        """
        field = self._editing
        draft = self._draft
        if field is None or draft is None:
            return True
        text = self._typed_value(field, draft)
        if find_problem(draft, field, text):
            self._check(is_final=True)
            return False
        value = parse_typed(field, text)
        self._stop_editing(back)
        if value != draft.get(field.key):
            self.post_message(self.Changed(draft.name, field.key, value))
        return True

    def commit_before(self, act: Callable[[], None]) -> bool:
        """Commit what was typed, and post `act` after it; return False if it is invalid."""
        is_valid = self.commit()
        if is_valid:  # from the table, so that it comes after what was picked there as well
            self._table.post_message(self.Committed(act))
        return is_valid

    def _stop_editing(self, back: bool = True) -> None:
        if self._editing:
            self._editing = None
            self._problem_of_typed = ""
            if back:
                self._table.focus()
            self.remove_class("-editing")
            self._paint()

    def leave_line(self) -> None:
        """Stop editing and discard what was typed."""
        self._stop_editing()

    def action_leave(self, direction: int) -> None:
        """Commit what was typed and move to the next field."""
        if not self._editing:
            raise SkipAction()
        if self.commit():
            self._table.action_move(direction)

    def action_cancel(self) -> None:
        if (field := self._editing) and self._draft:
            before = editable_text(self._draft.get(field.key), field)
            if is_much(before, self._editor.value):
                self.post_message(self.DiscardWanted(field, self._editor.value))
            else:
                self._stop_editing()
        elif self.has_class("-filtering"):
            self.remove_class("-filtering")
            self._filter.value = ""
            self._table.focus()
        else:
            raise SkipAction()

    # --- what the screen calls ------------------------------------------------------------------

    @property
    def field(self) -> Field | None:
        """Return the field under the cursor."""
        return self._table.field

    def go_in(self, key: str = "") -> None:
        """Focus the table and move the cursor to a field."""
        # At once: keys typed ahead must not reach the list of presets, where letters are actions.
        self.screen.set_focus(self._table)
        if key:
            self._table.go_to(key)

    def show_all(self) -> None:
        """Show all fields, or only the common ones again."""
        self._everything = not self._everything
        self._paint()

    def filter(self) -> None:
        """Open the line for words that the fields must contain."""
        self.add_class("-filtering")
        self.screen.set_focus(self._filter)  # at once: words may be on their way


def _option_text(name: str, about: str) -> str:
    return f"{name}  {about}" if about else name
