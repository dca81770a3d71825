"""The installation of Horovod, with its progress."""

from __future__ import annotations

import time
from collections import deque

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Label, Static

from distrain.runners import formatting
from distrain.runners.errors import InstallError
from distrain.runners.horovod.install import Installation, Progress
from distrain.runners.horovod.subprocesses import InstallStoppedError
from distrain.tui.dialogs.dialog import Dialog
from distrain.tui.dialogs.kept import discard
from distrain.tui.keymap import insert_keys
from distrain.tui.plotting.sparkline import bar

NAME = "install"
BAR = 40  # cells
KEPT_LINES = 8  # of the output
PAUSE_S = 0.15  # at least, between two messages: pip prints many lines at once


class InstallHorovodDialog(Dialog[bool]):
    """Install Horovod in a thread, which goes on when the dialog is closed until `s` stops it.

    Return whether it succeeded; None while it goes on.
    """

    BINDINGS = [Binding("s", "stop", "Stop", show=False)]  # noqa: RUF012

    LOOK = "wide"

    class Progressed(Message):
        """The progress, with the lines that were printed since the last message."""

        def __init__(self, progress: Progress, lines: list[str]) -> None:
            super().__init__()
            self.progress = progress
            self.lines = lines

    class Ended(Message):
        """The result in one sentence, with the lines that were printed last."""

        def __init__(self, text: str, succeeded: bool, lines: list[str]) -> None:
            super().__init__()
            self.text = text
            self.succeeded = succeeded
            self.lines = lines

    def __init__(self) -> None:
        super().__init__("Install Horovod for the installed torch")
        self._installation = Installation(self._report)
        self._unsent_lines: list[str] = []
        self._last_stage = ""
        self._last_sent = 0.0  # on the monotonic clock
        self._shown_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._succeeded: bool | None = None
        self._is_stopped = False

    def compose_body(self) -> ComposeResult:
        yield Static(id="install-stage", markup=False)
        yield Static(id="install-lines", markup=False, classes="quiet")
        yield Label("", id="install-keys", classes="quiet", markup=False)

    def on_mount(self) -> None:
        self._show_keys()
        self._install()

    def on_unmount(self) -> None:
        self._installation.stop()

    @work(thread=True)
    def _install(self) -> None:
        try:
            text = self._installation.run()
            succeeded = True
        except InstallStoppedError:
            self._is_stopped = True
            return
        except InstallError as error:
            text = str(error)
            succeeded = False
        self.post_message(self.Ended(text, succeeded, self._unsent_lines))

    def _report(self, progress: Progress) -> None:
        """Collect lines, and send them when the stage changes or time has passed.

        It runs in the thread of the installation.
        """
        if progress.line:
            self._unsent_lines.append(formatting.single_line(progress.line))
        now = time.monotonic()
        if progress.stage != self._last_stage or now - self._last_sent > PAUSE_S:
            self._last_stage = progress.stage
            self._last_sent = now
            lines = self._unsent_lines
            self._unsent_lines = []
            self.post_message(self.Progressed(progress, lines))

    def on_install_horovod_dialog_progressed(self, event: Progressed) -> None:
        self._paint(format_stage(event.progress), event.lines)

    def on_install_horovod_dialog_ended(self, event: Ended) -> None:
        self._succeeded = event.succeeded
        self._paint(Text(event.text, "green" if event.succeeded else "red"), event.lines)
        self._show_keys()
        if self not in self.app.screen_stack:
            self.app.notify(event.text, severity="information" if event.succeeded else "error")

    def _show_keys(self) -> None:
        text = insert_keys(
            "s stops · esc leaves it running; {launch.install} shows it again", self.app
        )
        if self._has_ended:
            text = "esc goes back"
        self.query_one("#install-keys", Label).update(text)

    @property
    def _has_ended(self) -> bool:
        return self._succeeded is not None or self._is_stopped

    def action_stop(self) -> None:
        if self._succeeded is None:
            self._is_stopped = True
            self._installation.stop()
            self._paint(Text("stopped", "yellow"), [])
            self._show_keys()

    def _paint(self, headline: Text, lines: list[str]) -> None:
        self._shown_lines.extend(lines)
        output = Text("\n".join(self._shown_lines), no_wrap=True, overflow="ellipsis")
        self.query_one("#install-stage", Static).update(headline)
        self.query_one("#install-lines", Static).update(output)

    def action_dismiss_without(self) -> None:
        self.dismiss(self._succeeded)
        if self._has_ended:
            self.app.call_later(discard, self.app, self, NAME)


def format_stage(progress: Progress) -> Text:
    """Return the stage, with a bar where the share that is done is known."""
    text = Text(f"{progress.stage} … ", "bold", no_wrap=True)
    if progress.share is not None:
        text.append(bar(progress.share, BAR), "cyan")
        text.append(f" {formatting.percent(progress.share)}", "not bold")
    return text
