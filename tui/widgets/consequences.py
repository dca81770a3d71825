"""What follows from the form, beside it: figures, warnings, the command."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text

from runners import words
from tui.data import consequences
from tui.data.consequences import Outlook
from tui.keymap import keyed
from tui.widgets.text_pane import TextPane, wrapped

LABEL = 12
BRIEF = 6  # lines under which only the gist is told


class Consequences(TextPane):
    """`show` gives it an outlook and the command that does the same run."""

    HELP = (
        "What the form means on this machine. The length is that of the newest run of the same "
        "strategy, model, data and number of devices. {app.copy} copies the command."
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("what follows", id=id)
        self._outlook: Outlook | None = None
        self._command = ""
        self._busy = False

    def show(self, outlook: Outlook | None, command: str, busy: bool) -> None:
        """`busy` where the outlook is not yet that of the command."""
        self._outlook, self._command, self._busy = outlook, command, busy
        self._paint()

    def _paint(self) -> None:
        if self.width < LABEL:
            return
        hint = keyed("{app.copy} copies the command", self.app)
        if self.height < BRIEF:
            hint = keyed(f"tab, {{app.full}}: in full · {hint}", self.app)
            self.put(gist(self._outlook, self._command, self.width, self.height))
        else:
            self.put(in_full(self._outlook, self._command, self.width))
        self.border_subtitle = "working it out …" if self._busy else hint


def in_full(outlook: Outlook | None, command: str, width: int) -> list[Text]:
    """Problems first, then a line for each figure, then notices and the command."""
    lines: list[Text] = []
    if outlook is not None:
        lines += _problems(outlook.problems, width)
        for label, text in consequences.figures(outlook):
            lines += _figure(label, text, width)
        for notice in outlook.plan.notices if outlook.plan else ():
            lines += [Text(), *wrapped(f"▲ {notice}", "yellow", width)]
    if command:
        lines += [Text(), *wrapped(f"$ {command}", "", width)]
    return lines


def _problems(problems: Sequence[tuple[str, str]], width: int) -> list[Text]:
    if not problems:
        return []
    lines = [Text.assemble(("✘ this cannot run", "bold red"))]
    for key, text in problems:
        lines += wrapped(f"{key}: {text}" if key else text, "red", width)
    return [*lines, Text()]


def _figure(label: str, text: str, width: int) -> list[Text]:
    first, *more = wrap(text, max(width - LABEL, 10)) or [""]
    lines = [Text.assemble((label.ljust(LABEL), "dim"), first)]
    return [*lines, *(Text(" " * LABEL + line) for line in more)]


def gist(outlook: Outlook | None, command: str, width: int, height: int) -> list[Text]:
    """A few lines for a small screen; trouble goes before figures, the command comes last."""
    lines: list[Text] = []
    if outlook is not None and outlook.problems:
        lines = _problems(outlook.problems, width)[1:-1]
    elif outlook is not None and outlook.plan is not None:
        lines = _parts(_few(outlook), width)
        lines += [Text.assemble((f"▲ {notice}", "yellow")) for notice in outlook.plan.notices]
    command_line = Text(f"$ {command}") if command else Text()
    lines = [*lines[: height - 1], command_line] if height > 1 else lines[:1]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _few(outlook: Outlook) -> list[str]:
    plan = outlook.plan
    assert plan is not None, "asked for only with a plan"
    figures = dict(consequences.figures(outlook))
    return [
        f"{words.things(plan.world_size, 'rank')} on {consequences.devices(plan)}",
        figures["batch"],
        f"rate {plan.lr:g}",
        plan.precision,
        f"backend {plan.backend}",
        words.things(plan.threads, "thread") + " each",
        f"steps: {figures['steps']}",
        f"length: {figures['length']}",
    ]


def _parts(parts: Sequence[str], width: int) -> list[Text]:
    """Joined with dots into as many lines as they need, none broken within."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(part)
    return [Text(line) for line in lines]
