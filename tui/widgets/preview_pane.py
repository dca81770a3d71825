"""The preview of a launch: problems, figures, notices, and the equivalent command."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text

from distrain.runners import formatting
from distrain.tui.data import launch_preview
from distrain.tui.data.launch_preview import LaunchPreview
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.text_pane import TextPane, wrapped

LABEL = 12
BRIEF = 6  # with fewer lines only a summary is shown


class PreviewPane(TextPane):
    """Shows a preview and the command line that launches the same run."""

    HELP = (
        "What the form means on this machine. The time is estimated from the newest run with the "
        "same strategy, model, data and number of devices. {app.copy} copies the command."
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Preview", id=id)
        self._preview: LaunchPreview | None = None
        self._command = ""
        self._busy = False

    def show(self, preview: LaunchPreview | None, command: str, busy: bool) -> None:
        """Show a preview; `busy` says that it does not belong to the command yet."""
        self._preview = preview
        self._command = command
        self._busy = busy
        self._paint()

    def _paint(self) -> None:
        if self.width < LABEL:
            return
        hint = insert_keys("{app.copy} copies the command", self.app)
        if self.height < BRIEF:
            hint = insert_keys(f"tab, {{app.full}} shows all · {hint}", self.app)
            self.put(short_lines(self._preview, self._command, self.width, self.height))
        else:
            self.put(full_lines(self._preview, self._command, self.width))
        self.border_subtitle = "updating …" if self._busy else hint


def full_lines(preview: LaunchPreview | None, command: str, width: int) -> list[Text]:
    """Return problems, a line per figure, notices and the command."""
    lines: list[Text] = []
    if preview is not None:
        lines += _problems(preview.problems, width)
        for label, text in launch_preview.figures(preview):
            lines += _figure(label, text, width)
        for notice in preview.plan.notices if preview.plan else ():
            lines += [Text(), *wrapped(f"▲ {notice}", "yellow", width)]
    if command:
        lines += [Text(), *wrapped(f"$ {command}", "", width)]
    return lines


def _problems(problems: Sequence[tuple[str, str]], width: int) -> list[Text]:
    if not problems:
        return []
    lines = [Text.assemble(("✘ cannot run", "bold red"))]
    for key, text in problems:
        lines += wrapped(f"{key}: {text}" if key else text, "red", width)
    return [*lines, Text()]


def _figure(label: str, text: str, width: int) -> list[Text]:
    first, *more = wrap(text, max(width - LABEL, 10)) or [""]
    lines = [Text.assemble((label.ljust(LABEL), "dim"), first)]
    return [*lines, *(Text(" " * LABEL + line) for line in more)]


def short_lines(preview: LaunchPreview | None, command: str, width: int, height: int) -> list[Text]:
    """Return at most `height` lines: problems or the main figures, and the command."""
    lines: list[Text] = []
    if preview is not None and preview.problems:
        lines = _problems(preview.problems, width)[1:-1]
    elif preview is not None and preview.plan is not None:
        lines = _parts(_main_figures(preview), width)
        lines += [Text.assemble((f"▲ {notice}", "yellow")) for notice in preview.plan.notices]
    command_line = Text(f"$ {command}") if command else Text()
    lines = [*lines[: height - 1], command_line] if height > 1 else lines[:1]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _main_figures(preview: LaunchPreview) -> list[str]:
    plan = preview.plan
    assert plan is not None, "called only with a plan"
    figures = dict(launch_preview.figures(preview))
    place = f"{formatting.plural(plan.world_size, 'rank')} on {launch_preview.devices(plan)}"
    if preview.config.is_script:
        return [place, figures["script"]]
    return [
        place,
        figures["batch"],
        f"lr {plan.lr:g}",
        plan.precision,
        f"backend {plan.backend}",
        formatting.plural(plan.threads, "thread") + " each",
        f"steps: {figures['steps']}",
        f"time: {figures['time']}",
    ]


def _parts(parts: Sequence[str], width: int) -> list[Text]:
    """Join parts with dots into lines, without breaking a part."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(part)
    return [Text(line) for line in lines]
