"""The form of a run: the sheet, a line to type in that lies over it, words on the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from tui import keymap
from tui.data import form
from tui.data.form import Draft, Field
from tui.screens.dialogs import PickOne
from tui.widgets.sheet import Sheet

OTHER = "something else …"
UNSET = "unset"
HINTS = {
    "bool": "space switches",
    "choice": "← → change it, enter lists",
    "number": "type a number, or enter",
    "text": "enter edits",
    "devices": "enter edits",
    "list": 'enter edits, e.g. ["--exclusive"]',
    "table": "enter edits, e.g. {hidden = [256, 128]}",
}


class FormPane(Vertical):
    """`show` gives it a draft; it says which field got which value."""

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
        & > #about { height: 5; margin: 1 0 0 0; }
        &.-filtering > #filter { display: block; }
        &.-empty > Sheet { display: none; }
        &.-empty > #about { height: 1fr; margin: 0; }
        &.-editing > #editor { display: block; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.hidden("escape", "cancel"),
        keymap.hidden("tab,down", "leave(1)"),
        keymap.hidden("shift+tab,up", "leave(-1)"),
    ]

    class Changed(Message):
        """A person gave a field of that preset a value that it can have."""

        def __init__(self, name: str, key: str, value: Any) -> None:
            super().__init__()
            self.name, self.key, self.value = name, key, value

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draft: Draft | None = None
        self._editing: Field | None = None
        self._complaints: Mapping[str, str] = {}
        self._everything = False
        self._typing = ""
        self._instead = ""

    def compose(self) -> ComposeResult:
        yield Input(id="filter", placeholder="words in a field's name or explanation", compact=True)
        yield Sheet(id="sheet")
        yield Static(id="about", markup=False)
        yield Input(id="editor", compact=True)

    def on_mount(self) -> None:
        self._sheet = self.query_one(Sheet)
        self._editor = self.query_one("#editor", Input)
        self._filter = self.query_one("#filter", Input)
        self.watch(self._sheet, "scroll_y", self._place_editor, init=False)

    # --- what it shows --------------------------------------------------------------------------

    def show(
        self, draft: Draft | None, complaints: Mapping[str, str], title: str, instead: str = ""
    ) -> None:
        """A draft and what is wrong with it by key, or what is to be said where there is none."""
        if draft is None or self._draft is None or draft.name != self._draft.name:
            self._stop_editing(back=False)
        self._draft, self._complaints, self.border_title = draft, complaints, Content(title)
        self._instead = instead
        self.set_class(draft is None, "-empty")
        self._paint()

    def _paint(self) -> None:
        fields: list[Field] = []
        if self._draft is not None:
            fields = form.visible(
                self._draft,
                everything=self._everything,
                words=self._filter.value,
                troubled=self._complaints,
            )
        complaints = dict(self._complaints)
        if self._editing:
            complaints.pop(self._editing.key, None)
            if self._typing:
                complaints[self._editing.key] = self._typing
        self._sheet.show(self._draft, fields, complaints)
        self.border_subtitle = self._how_many(len(fields)) if self._draft else ""
        self._tell()
        self.call_after_refresh(self._place_editor)

    def _how_many(self, shown: int) -> str:
        every = len(form.fields())
        if self._filter.value:
            return f"{shown} of {every} fields · esc shows more"
        many = f"all {every}" if shown == every else f"{shown}"
        more = "fewer" if shown == every else "all"
        return keymap.keyed(f"{many} fields · {{launch.all}} {more}", self.app)

    def on_sheet_moved(self) -> None:
        self._tell()

    def on_resize(self) -> None:
        self.call_after_refresh(self._place_editor)

    def _tell(self) -> None:
        """About the field under the cursor."""
        field, draft = self._sheet.field, self._draft
        text = Text()
        if field and draft:
            text.append(field.key, "bold").append(f"  {field.wanted}", "dim")
            text.append(f"\n{field.about}\n" if field.about else "\n")
            text.append(self._hint(field, draft), "dim")
        elif draft:
            text.append("no field has all these words", "dim")
        else:
            text.append(self._instead)
        self.query_one("#about", Static).update(text)

    def _hint(self, field: Field, draft: Draft) -> str:
        if self._editing:
            unset = ", nothing unsets it" if field.optional else ""
            return f"enter keeps it, esc leaves it as it was{unset}"
        hint = HINTS[field.kind]
        if field.key in form.OFFERED:
            hint = "enter lists what there is"
        if draft.changed(field.key):
            before = form.shown(draft.preset_value(field.key), field)
            hint += keymap.keyed(" · {launch.reset} gives ", self.app) + f"{before} back"
        return hint

    # --- editing --------------------------------------------------------------------------------

    def on_sheet_picked(self, event: Sheet.Picked) -> None:
        if self._draft:
            self.post_message(self.Changed(self._draft.name, event.field.key, event.value))

    def on_sheet_wanted(self, event: Sheet.Wanted) -> None:
        field, draft = event.field, self._draft
        if draft is None:
            return
        if self._editing:
            self._catch_up(event.typed)
            return
        options = [(name, _described(name, about)) for name, about in form.offers(field.key)]
        if field.kind == "choice":
            options = [(name, name) for name in field.choices]
            options += [(UNSET, UNSET)] if field.optional else []
        if options:
            self._offer(field, draft, options)
        else:
            self._edit(field, event.typed)

    def _offer(self, field: Field, draft: Draft, options: list[tuple[str, str]]) -> None:
        if field.open or field.kind != "choice":
            options = [*options, (OTHER, OTHER)]

        def choose(name: str | None) -> None:
            if name == OTHER:
                self._edit(field)
            elif name is not None:
                value = None if name == UNSET else name
                self.post_message(self.Changed(draft.name, field.key, value))

        now = draft.get(field.key) or UNSET
        self.app.push_screen(PickOne(f"{field.key}: {field.about}", options, now), choose)

    def _edit(self, field: Field, typed: str | None = None) -> None:
        if self._draft is None:
            return
        self._editing = field
        text = form.as_typed(self._draft.get(field.key), field) if typed is None else typed
        self.add_class("-editing")
        with self.prevent(Input.Changed):
            self._editor.value = text
        self._editor.select_on_focus = typed is None  # else the next key would replace it
        self._editor.placeholder = UNSET if field.optional else ""
        self._editor.cursor_position = len(text)
        self._check()
        self._editor.focus()

    def _catch_up(self, typed: str | None) -> None:
        """A key that came before the line had the focus: fast typing, a slow connection."""
        if typed is None:
            self.commit()
        else:
            self._editor.insert_text_at_cursor(typed)

    def _place_editor(self, _: object = None) -> None:
        if self._editing:
            column, line = self._sheet.value_at
            top = self._sheet.region.y - self.content_region.y
            self._editor.offset = (column - 1, top + line)
            self._editor.styles.width = max(self._sheet.width - column + 1, 8)

    def _check(self) -> None:
        """Keep what is wrong with what stands in the line, and show it at the field."""
        if self._editing and self._draft:
            self._typing = form.complaint(self._draft, self._editing, self._editor.value)
            self._paint()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self._filter:
            self._paint()
        else:
            self._check()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self._filter:
            self._sheet.focus()
        else:
            self.commit()

    def on_input_blurred(self, event: Input.Blurred) -> None:
        # Who goes elsewhere with the mouse means what was typed, as far as it can be meant.
        gone = event.input is self._editor and not self._editor.has_focus
        if gone and self._editing and not self.commit(back=False):
            self._stop_editing(back=False)

    def commit(self, back: bool = True) -> bool:
        """Take over what is being typed; False where it cannot be a value.

        `back` puts the focus on the sheet again.
        """
        field, draft = self._editing, self._draft
        if field is None or draft is None:
            return True
        if form.complaint(draft, field, self._editor.value):
            return False
        value = form.typed(field, self._editor.value)
        self._stop_editing(back)
        if value != draft.get(field.key):
            self.post_message(self.Changed(draft.name, field.key, value))
        return True

    def _stop_editing(self, back: bool = True) -> None:
        if self._editing:
            self._editing, self._typing = None, ""
            if back:
                self._sheet.focus()
            self.remove_class("-editing")
            self._paint()

    def leave_line(self) -> None:
        """Forget what is being typed."""
        self._stop_editing()

    def action_leave(self, direction: int) -> None:
        """Keep what was typed and go to the next field."""
        if not self._editing:
            raise SkipAction()
        if self.commit():
            self._sheet.action_move(direction)

    def action_cancel(self) -> None:
        if self._editing:
            self._stop_editing()
        elif self.has_class("-filtering"):
            self.remove_class("-filtering")
            self._filter.value = ""
            self._sheet.focus()
        else:
            raise SkipAction()

    # --- what the screen asks for ---------------------------------------------------------------

    @property
    def field(self) -> Field | None:
        """The one under the cursor."""
        return self._sheet.field

    def go_in(self, key: str = "") -> None:
        """Put the focus on the sheet, and the cursor on a field."""
        # At once: keys that have come already must not go where the focus was, and launch.
        self.screen.set_focus(self._sheet)
        if key:
            self._sheet.go_to(key)

    def show_all(self) -> None:
        """All fields, or back to those in common use."""
        self._everything = not self._everything
        self._paint()

    def filter(self) -> None:
        """Let a person type words that a field must have."""
        self.add_class("-filtering")
        self._filter.focus()


def _described(name: str, about: str) -> str:
    return f"{name}  {about}" if about else name
