"""The choice of what to copy."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Input, OptionList

from distrain.runners import formatting
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue
from distrain.tui.dialogs.pick_one import PickOneDialog

LABEL = 20  # cells
VALUE = 32  # cells


class CopyDialog(PickOneDialog):
    """Return the index of one of the values as text. The copy key copies the first one."""

    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("y", "copy_first", "app.copy", priority=True)
    ]

    def __init__(self, values: Sequence[CopyValue]) -> None:
        options = [(str(index), _describe(value)) for index, value in enumerate(values)]
        super().__init__("Copy", options)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the copy key to a search that has begun."""
        if action == "copy_first":
            return not any(line.value for line in self.query(Input))
        return super().check_action(action, parameters)

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
