"""The preview of a launch: the control that launches, problems, figures, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from distrain.runners import formatting
from distrain.tui import keymap
from distrain.tui.data import launch_preview
from distrain.tui.data.launch_preview import LaunchPreview
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.launch_control import LaunchControl
from distrain.tui.widgets.text_pane import TextPane, wrapped

LABEL = 12
BRIEF = 6  # with fewer lines only a summary is shown


class PreviewText(TextPane, can_focus=False):
    """Shows a preview and the command line that launches the same run."""

    DEFAULT_CSS = "PreviewText { border: none; padding: 0; height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._preview: LaunchPreview | None = None
        self._command = ""

    def show(self, preview: LaunchPreview | None, command: str) -> None:
        self._preview = preview
        self._command = command
        self._paint()

    @property
    def is_brief(self) -> bool:
        """Return whether there is room only for a summary."""
        return self.height < BRIEF

    def _paint(self) -> None:
        if self.width < LABEL:
            return
        if self.is_brief:
            self.put(short_lines(self._preview, self._command, self.width, self.height))
        else:
            self.put(full_lines(self._preview, self._command, self.width))


class PreviewPane(Vertical):
    """Shows what a launch would do. Its control, which has the focus of the pane, launches."""

    HELP = (
        "What the form means on this machine. Enter launches, ↑ and ↓ scroll. The time is "
        "estimated from the newest run with the same strategy, model, data and number of devices. "
        "{app.copy} copies the command."
    )
    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = """
    PreviewPane {
        border: round $foreground 30%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        padding: 0 1;
        &:focus-within { border: round $accent; border-title-color: $text; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up", "scroll(-1)"),
        keymap.make_hidden_binding("down", "scroll(1)"),
        keymap.make_hidden_binding("pageup", "scroll(-8)"),
        keymap.make_hidden_binding("pagedown", "scroll(8)"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "Preview"
        self._is_stale = False

    def compose(self) -> ComposeResult:
        yield LaunchControl()
        yield PreviewText()

    def on_mount(self) -> None:
        self.control = self.query_one(LaunchControl)
        self._text = self.query_one(PreviewText)

    @property
    def lines(self) -> Sequence[Text]:
        """Return the lines below the control."""
        return self._text.lines

    def show(
        self, preview: LaunchPreview | None, command: str, is_stale: bool, launching: str = ""
    ) -> None:
        """Show a preview; `is_stale` says that it does not belong to the command yet.

        `launching` is the launch that is in progress.
        """
        problems = preview is not None and bool(preview.problems)
        if launching:
            actions = [f"{launching} …"]
        elif problems or not command:
            actions = ["✘ Cannot launch"]
        else:
            key = insert_keys("{launch.start}", self.app)
            labels = launch_preview.launch_labels(None if is_stale else preview)
            actions = [f"▶ {label}  ({key})" for label in labels]
            actions.append(f"▶ {labels[-1]}")
        self.control.show(actions, is_possible=bool(command) and not problems)
        self._is_stale = is_stale
        self._text.show(preview, command)
        self._describe()

    def on_resize(self) -> None:
        self._describe()

    def _describe(self) -> None:
        hint = insert_keys("{app.copy} copies the command", self.app)
        if self._text.is_brief:
            hint = insert_keys(f"{{app.full}} shows all · {hint}", self.app)
        self.border_subtitle = "updating …" if self._is_stale else hint

    def on_click(self, event: events.Click) -> None:
        self.control.focus()

    def action_scroll(self, by: int) -> None:
        self._text.scroll_relative(y=by, animate=False)


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
    sweep = [f"{len(preview.runs)} runs", f"total: {figures['total']}"] if preview.runs else []
    place = f"{formatting.plural(plan.world_size, 'rank')} on {launch_preview.devices(plan)}"
    if preview.runs:
        place = f"first run ({launch_preview.first_run(preview)}): {place}"
    if preview.config.is_script:
        return [*sweep, place, figures["script"]]
    return [
        *sweep,
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
