"""Horovod, built and installed while one looks on."""

from __future__ import annotations

import time
from collections import deque

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Label, Static

from runners import words
from runners.errors import InstallError
from runners.horovod.commands import StoppedError
from runners.horovod.install import Installation, Progress
from tui.screens.dialogs import Dialog
from tui.spark import bar

BAR = 40
KEPT = 8  # lines of what is printed
PAUSE_S = 0.15  # between two looks: pip says much at once


class InstallHorovod(Dialog[bool]):
    """A thread installs; what is under way ends with the dialog. Gives whether all went well."""

    class Told(Message):
        """How far it is, with what was printed since the last one."""

        def __init__(self, now: Progress, lines: list[str]) -> None:
            super().__init__()
            self.now, self.lines = now, lines

    class Ended(Message):
        """What came of it, in a sentence, with what was printed last."""

        def __init__(self, text: str, well: bool, lines: list[str]) -> None:
            super().__init__()
            self.text, self.well, self.lines = text, well, lines

    def __init__(self) -> None:
        super().__init__()
        self._installation = Installation(self._heard)
        self._fresh: list[str] = []
        self._shown = ("", 0.0)  # the stage of the last message, and when
        self._last: deque[str] = deque(maxlen=KEPT)
        self._well: bool | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide"):
            yield Label("Horovod for the torch that is here", classes="dialog-title")
            yield Static(id="install-stage", markup=False)
            yield Static(id="install-lines", markup=False, classes="quiet")
            yield Label("esc ends it", id="install-keys", classes="quiet")

    def on_mount(self) -> None:
        self._install()

    def on_unmount(self) -> None:
        self._installation.stop()

    @work(thread=True)
    def _install(self) -> None:
        try:
            text, well = self._installation.run(), True
        except StoppedError:
            return
        except InstallError as error:
            text, well = str(error), False
        self.post_message(self.Ended(text, well, self._fresh))

    def _heard(self, now: Progress) -> None:
        """In the thread; what comes fast goes on together."""
        if now.line:
            self._fresh.append(words.line(now.line))
        stage, then = self._shown
        if now.stage != stage or time.monotonic() - then > PAUSE_S:
            self._shown = now.stage, time.monotonic()
            lines, self._fresh = self._fresh, []
            self.post_message(self.Told(now, lines))

    def on_install_horovod_told(self, event: Told) -> None:
        self._paint(stage(event.now), event.lines)

    def on_install_horovod_ended(self, event: Ended) -> None:
        self._well = event.well
        self._paint(Text(event.text, "green" if event.well else "red"), event.lines)
        self.query_one("#install-keys", Label).update("esc goes back")

    def _paint(self, head: Text, lines: list[str]) -> None:
        self._last.extend(lines)
        said = Text("\n".join(self._last), no_wrap=True, overflow="ellipsis")
        self.query_one("#install-stage", Static).update(head)
        self.query_one("#install-lines", Static).update(said)

    def action_dismiss_without(self) -> None:
        self.dismiss(self._well)


def stage(now: Progress) -> Text:
    """The stage, with a bar where it is known how much of it is done."""
    text = Text(f"{now.stage} … ", "bold", no_wrap=True)
    if now.share is not None:
        text.append(bar(now.share, BAR), "cyan").append(f" {words.percent(now.share)}", "not bold")
    return text
