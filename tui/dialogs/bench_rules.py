"""The rules of a bench, next to what its candidates have in common and how they differ."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Button, Input, Label, Select, Static

from distrain.runners import bench
from distrain.runners.analysis.comparison import descriptions, sentences
from distrain.runners.bench import Definition
from distrain.runners.bench.progress import describe_plan, shell_command
from distrain.runners.config.plan import Plan
from distrain.runners.errors import ConfigError
from distrain.tui.dialogs.dialog import Answer, Dialog

FIELDS = {
    "repeats": "rounds (max)",
    "precision": "precision ± %",
    "seconds": "seconds per run",
    "steps": "or steps per run",
}
CHOICES = {"baseline": "baseline", "unequal": "if unequal"}
WHOLE = ("repeats", "steps")


class BenchRulesDialog(Dialog[Definition]):
    """Edit the rules of a bench and return its definition.

    `plans` are the plans of the candidates. Where they differ in what should be equal, the dialog
    says so and asks whether to compare them anyway.
    """

    LOOK = "wide bench-rules"

    def __init__(self, definition: Definition, plans: dict[str, Plan]) -> None:
        self._definition = definition
        self._settings = definition.settings(plans)
        self._is_unequal = any(not each.fair for each in self._settings.differences)
        if self._is_unequal:
            heading = "The comparison would be unequal"
            start = Answer("start", "Compare anyway", "warning")
        else:
            heading, start = "Bench", Answer("start", "Start", "primary")
        super().__init__(heading, [start])

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="bench-settings", can_focus=False):
            yield Static(self._describe_settings())
        for row in (("repeats", "precision"), ("seconds", "steps")):
            with Horizontal(classes="bench-fields"):
                for name in row:
                    yield Label(FIELDS[name], classes="quiet")
                    yield self._input(name)
        names = list(self._definition.configs)
        baselines = [(Text(name), name) for name in names]
        yield from _choice("baseline", baselines, self._definition.baseline)
        if self._definition.has_scripts and not self._is_unequal:
            # What scripts declare is known once they run.
            yield from _choice(
                "unequal", [("end the bench", False), ("compare anyway", True)], False
            )
        yield Static(id="bench-outlook", markup=False)

    def on_mount(self) -> None:
        self._update_outlook()

    def _describe_settings(self) -> RenderableType:
        """Return a table of the differences, a column per candidate, and what is equal or not
        checked.
        """
        equal = Text(f"equal: {descriptions.format_settings(self._settings.equal)}", "dim")
        if unchecked := sentences.describe_unchecked(self._settings.unchecked):
            equal.append(f"\n{unchecked}", "yellow")
        if not self._settings.differences:
            return equal
        table = Table.grid(padding=(0, 2))
        table.add_row("", *(Text(name, "bold") for name in self._definition.configs))
        for difference in self._settings.differences:
            key = difference.key if difference.fair else f"{difference.key} (UNEQUAL)"
            values = [sentences.format_setting(value) for value in difference.values]
            table.add_row(
                *map(Text, [key, *values]), style="" if difference.fair else "bold yellow"
            )
        return Group(table, equal)

    def _input(self, name: str) -> Input:
        value = getattr(self._definition.rules, name)
        text = "" if value is None else f"{100 * value if name == 'precision' else value:g}"
        return Input(
            text, id=f"bench-{name}", type="number", valid_empty=name == "steps", compact=True
        )

    # --- what is typed --------------------------------------------------------------------------

    def on_input_changed(self) -> None:
        self._update_outlook()

    def on_select_changed(self) -> None:
        self._update_outlook()

    def _update_outlook(self) -> None:
        line = self.query_one("#bench-outlook", Static)
        edited = self._edited()
        is_wrong = isinstance(edited, str)
        line.update(edited if isinstance(edited, str) else _outlook(edited))
        line.set_class(is_wrong, "complaint")

    def _edited(self) -> Definition | str:
        """Return the definition with the typed rules, or what is wrong with them."""
        old = self._definition
        rules: dict[str, Any] = structs.asdict(old.rules)
        rules |= {"unequal": self._may_be_unequal(), "baseline": self._baseline()}
        for name, label in FIELDS.items():
            text = self.query_one(f"#bench-{name}", Input).value
            if name == "steps" and not text:
                rules[name] = None
                continue
            try:
                typed = float(text)
            except ValueError:
                return f"{label}: enter a number"
            rules[name] = typed / 100 if name == "precision" else typed
            if name in WHOLE and typed.is_integer():
                rules[name] = int(typed)
        try:
            return bench.make(old.configs, rules, old.target)
        except ConfigError as error:
            return "; ".join(f"{key}: {text}" for key, text in error.problems)

    def _may_be_unequal(self) -> bool:
        choices = self.query("#bench-unequal").results(Select)
        return self._is_unequal or any(choice.value for choice in choices)

    def _baseline(self) -> str:
        return str(self.query_one("#bench-baseline", Select).value)

    # --- the answer -----------------------------------------------------------------------------

    def on_input_submitted(self) -> None:
        self.query_one("#start", Button).focus()  # a second Enter starts the bench

    def answer(self, id: str) -> None:
        edited = self._edited()
        if isinstance(edited, Definition):
            self.dismiss(edited)


def _choice(
    name: str, options: Sequence[tuple[Text | str, Any]], value: object
) -> Iterator[Widget]:
    """Yield a line in which one of the options is selected."""
    select = Select(options, value=value, allow_blank=False, compact=True, id=f"bench-{name}")
    yield Horizontal(Label(CHOICES[name], classes="quiet"), select, classes="bench-fields")


def _outlook(definition: Definition) -> Text:
    """Return how long the bench takes, and the command line that starts the same."""
    line = f"\n$ {shlex.join(shell_command(definition))}"
    return Text.assemble(describe_plan(definition), (line, "dim"))
