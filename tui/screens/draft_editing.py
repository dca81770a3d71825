"""Changing the draft of a preset in the form: keep a value, choose one, discard, reset."""

from __future__ import annotations

from collections.abc import Callable

from distrain.tui.base_app import BaseApp
from distrain.tui.data import draft_store
from distrain.tui.data.draft import Draft
from distrain.tui.data.preset_drafts import PresetDrafts
from distrain.tui.dialogs.dialog import Answer, ChoiceDialog, discard_question
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.widgets.form_pane import FormPane


class DraftEditing:
    """Applies what happens in the form to the drafts. `on_change` is called when one is kept."""

    def __init__(
        self, app: BaseApp, drafts: PresetDrafts, form: FormPane, on_change: Callable[[], None]
    ) -> None:
        self._app = app
        self._drafts = drafts
        self._form = form
        self._on_change = on_change

    def change(self, event: FormPane.Changed) -> None:
        if draft := self._drafts.by_name.get(event.name):
            self.keep(draft.with_value(event.key, event.value))

    def keep(self, draft: Draft) -> None:
        """Replace the draft of a preset, and save its changes."""
        try:
            self._drafts.keep(draft)
        except OSError as error:
            problem = f"cannot write {draft_store.path()}: {error.strerror}"
            text = f"{problem}; the change lasts until this screen is closed"
            self._app.notify(text, severity="warning", timeout=8)
        if self._drafts.notice:
            self._app.refuse(self._drafts.notice)
        self._on_change()

    def ask_for_option(self, event: FormPane.OptionsWanted) -> None:
        title = f"{event.field.key}: {event.field.about}"
        self._app.push_screen(
            PickOneDialog(title, event.options, event.current),
            lambda option: self._form.choose(event.name, event.field, option),
        )

    def ask_to_discard(self, event: FormPane.DiscardWanted) -> None:
        """Ask before what was typed is discarded; several presses of Escape ask once."""

        def answer(choice: str | None) -> None:
            if choice:
                self._form.leave_line()

        if self._app.screen is self._form.screen:
            title = f"Discard what you typed for {event.field.name}?"
            self._app.push_screen(discard_question(title, event.text), answer)

    def reset(self) -> None:
        """Reset the field under the cursor, or outside the form the whole preset."""
        draft = self._drafts.current
        field = self._form.field
        in_form = self._form.has_focus_within
        if draft and draft.changes and not in_form:
            self._ask_to_reset(draft)
        elif draft and field and draft.changed(field.key) and in_form:
            self._form.leave_line()
            self.keep(draft.reset(field.key))
        else:
            self._app.refuse(f"the {'field' if in_form else 'preset'} has no changes to reset")

    def _ask_to_reset(self, draft: Draft) -> None:
        def answer(choice: str | None) -> None:
            if choice:
                self.keep(draft.without_changes())

        text = f"Unsaved changes: {', '.join(draft.assignments)}"
        answers = [Answer("yes", "Discard", "warning", "d")]
        dialog = ChoiceDialog(f"Discard changes to {draft.label}?", text, answers)
        self._app.push_screen(dialog, answer)
