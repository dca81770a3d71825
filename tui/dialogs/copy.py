"""The choice of what to copy."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.widgets import Input, OptionList

from distrain.runners import formatting
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue
from distrain.tui.dialogs.pick_one import PickOneDialog

LABEL = 20  # cells
VALUE = 32  # cells


class CopyDialog(PickOneDialog):
    """Return the index of one of the values as text. The copy key copies the first one."""

    AUTO_FOCUS = "OptionList"  # a search line would take the copy key
    BINDINGS = [keymap.make_hidden_binding("y", "copy_first", "app.copy")]  # noqa: RUF012

    def __init__(self, values: Sequence[CopyValue]) -> None:
        options = [(str(index), _describe(value)) for index, value in enumerate(values)]
        super().__init__("Copy", options)

    async def on_key(self, event: events.Key) -> None:
        """Search for what is typed, from the first key on that does nothing else."""
        lines = self.query(Input)
        is_free = event.is_printable and event.key not in self.active_bindings
        if lines and is_free and event.character and not lines.first().has_focus:
            event.stop()
            self.set_focus(lines.first())
            lines.first().insert_text_at_cursor(event.character)
        else:
            await super().on_key(event)

    def action_copy_first(self) -> None:
        self.query_one(OptionList).action_select()


def _describe(value: CopyValue) -> str:
    """Return one line of the list."""
    text = formatting.single_line(value.text)
    label, text = (
        f"{each[: width - 1]}…" if len(each) > width else each
        for each, width in ((value.label, LABEL), (text, VALUE))
    )
    return f"{label:<{LABEL}}  {text}"
