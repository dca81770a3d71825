"""What a bench is to do: asked before it begins, beside what is equal in it and what differs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import structs
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Select, Static

from runners import bench
from runners.bench import Definition
from runners.bench.wording import command, outlook
from runners.comparison import Difference, wording
from runners.errors import ConfigError
from runners.plan import Plan
from tui.screens.dialogs import Dialog

FIELDS = {"repeats": "rounds at most", "seconds": "seconds each", "precision": "± %"}


class BenchRules(Dialog[Definition]):
    """Gives the definition as it was edited. `plans` are those of the contestants, which may be
    unequal: then it says in what, and offers to compare them all the same.
    """

    def __init__(self, definition: Definition, plans: dict[str, Plan]) -> None:
        super().__init__()
        self._definition = definition
        self._equal, self._differences = definition.settings(plans)
        self._unequal = [each for each in self._differences if not each.fair]

    def compose(self) -> ComposeResult:
        title = "The comparison would be unequal" if self._unequal else "Bench"
        with Vertical(classes="dialog wide", id="bench-rules"):
            yield Label(title, classes="dialog-title")
            with VerticalScroll(id="bench-settings", can_focus=False):
                yield Static(self._settings())
            with Horizontal(classes="bench-fields"):
                for name, label in FIELDS.items():
                    yield Label(label, classes="quiet")
                    yield Input(self._text(name), id=f"bench-{name}", type="number", compact=True)
            with Horizontal(classes="bench-fields"):
                names = list(self._definition.configs)
                yield Label("baseline", classes="quiet")
                yield Select(
                    [(Text(name), name) for name in names],
                    value=self._definition.baseline,
                    allow_blank=False,
                    compact=True,
                    id="bench-baseline",
                )
            yield Static(_outlook(self._definition), id="bench-outlook", markup=False)
            with Horizontal(classes="dialog-buttons"):
                how = ("Compare all the same", "warning") if self._unequal else ("Start", "primary")
                yield Button(how[0], id="start", variant=how[1])  # type: ignore[arg-type]
                yield Button("Cancel (esc)", id="cancel")

    def on_mount(self) -> None:
        self.query_one("#start", Button).focus()

    def _settings(self) -> Text:
        names = list(self._definition.configs)
        lines = [_difference(each, names) for each in self._differences]
        return Text("\n").join([*lines, Text(f"equal: {wording.settings(self._equal)}", "dim")])

    def _text(self, name: str) -> str:
        rules = self._definition.rules
        return f"{100 * rules.precision:g}" if name == "precision" else f"{getattr(rules, name):g}"

    # --- what is typed --------------------------------------------------------------------------

    def on_input_changed(self) -> None:
        self._look()

    def on_select_changed(self) -> None:
        self._look()

    def _look(self) -> None:
        line = self.query_one("#bench-outlook", Static)
        found = self._edited()
        line.update(found if isinstance(found, str) else _outlook(found))
        line.set_class(isinstance(found, str), "complaint")

    def _edited(self) -> Definition | str:
        """The definition, or what is wrong with it."""
        old = self._definition
        rules: dict[str, Any] = structs.asdict(old.rules)
        rules |= {"unequal": bool(self._unequal), "baseline": self._baseline()}
        for name, label in FIELDS.items():
            try:
                typed = float(self.query_one(f"#bench-{name}", Input).value)
            except ValueError:
                return f"{label}: a number, please"
            rules[name] = typed / 100 if name == "precision" else typed
        if rules["repeats"].is_integer():
            rules["repeats"] = int(rules["repeats"])
        try:
            return bench.make(old.configs, rules, old.target)
        except ConfigError as error:
            return "; ".join(f"{key}: {text}" for key, text in error.problems)

    def _baseline(self) -> str:
        return str(self.query_one("#bench-baseline", Select).value)

    # --- the answer -----------------------------------------------------------------------------

    def on_input_submitted(self) -> None:
        self._start()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "start":
            self._start()
        else:
            self.dismiss(None)

    def _start(self) -> None:
        found = self._edited()
        if isinstance(found, Definition):
            self.dismiss(found)


def _outlook(definition: Definition) -> Text:
    """How long it takes, and what begins the same in a shell."""
    line = f"\n$ {shlex.join(command(definition))}"
    return Text.assemble(outlook(definition), (line, "dim"))


def _difference(each: Difference, names: Sequence[str]) -> Text:
    told = wording.difference(each, names)
    return Text(f"differs: {told}") if each.fair else Text(f"UNEQUAL: {told}", "bold yellow")
