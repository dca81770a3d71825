"""The output of a command of the command line, while it runs and after it."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label

from distrain.runners import formatting
from distrain.runners.system.bound_command import bind
from distrain.tui.base_app import BaseApp
from distrain.tui.dialogs.dialog import Dialog
from distrain.tui.widgets.text_pane import TextPane

MOST_LINES = 20_000
MOST_CHARACTERS = 1 << 21  # lines may be long, and each paint breaks all of them
PAUSE_S = 0.1  # between two paints
GRACE_S = 3.0  # from SIGINT to SIGKILL
CHUNK = 1 << 16  # bytes


class OutputDialog(Dialog[str]):
    """Execute `distrain` with these words; Escape ends the command.

    Return its last line where it succeeded, if `wants_id` and that is the id of what it started.
    """

    BINDINGS = [("y", "copy", "Copy")]  # noqa: RUF012

    def __init__(self, words: Sequence[str], runs_dir: Path, wants_id: bool) -> None:
        super().__init__()
        self._words = words
        self._runs_dir = runs_dir
        self._wants_id = wants_id
        self.process: asyncio.subprocess.Process | None = None
        self._text = ""
        self._is_cut = False  # the beginning of the output is not kept

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog output"):
            yield TextPane(f"$ distrain {formatting.shell_words(self._words)}")
            yield Label("running · esc ends it", id="output-state", classes="quiet", markup=False)

    def on_mount(self) -> None:
        self._pane = self.query_one(TextPane)
        self._pane.focus()
        self.call_after_refresh(self._execute)

    @work(exclusive=True)
    async def _execute(self) -> None:
        environment = os.environ | {
            "DISTRAIN_RUNS_DIR": str(self._runs_dir),
            "COLUMNS": str(self._pane.width),
            "NO_COLOR": "1",
        }
        # As the installed command: no modules of the current folder.
        bound = bind([sys.executable, "-P", "-m", "distrain", *self._words])
        self.process = process = await asyncio.create_subprocess_exec(
            *bound.pop("args"),
            **bound,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a chunk may cut a character
        try:
            assert process.stdout is not None
            while chunk := await process.stdout.read(CHUNK):
                self._add(decoder.decode(chunk))
                await asyncio.sleep(PAUSE_S)
            code = await process.wait()
        finally:
            await _end(process)
        self._show_end(code)

    def _add(self, text: str) -> None:
        at_end = self._pane.scroll_offset.y >= self._pane.max_scroll_y
        whole = formatting.printable_lines(self._text + text)
        lines = whole[-MOST_CHARACTERS:].split("\n")[-MOST_LINES:]
        self._text = "\n".join(lines)
        self._is_cut |= len(self._text) < len(whole)
        self._paint()
        if at_end:
            self._pane.scroll_end(animate=False)

    def _paint(self) -> None:
        """Show the output, its long lines broken as a terminal breaks them."""
        width = max(self._pane.width, 1)
        lines = [line.expandtabs() for line in self._text.split("\n")]
        self._pane.put(
            [
                Text(line[start : start + width])
                for line in lines
                for start in range(0, max(len(line), 1), width)
            ]
        )

    def on_resize(self) -> None:
        self.call_after_refresh(self._paint)

    def _show_end(self, code: int) -> None:
        lines = self._text.split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "").strip()
        has_started = len(last.split()) == 1 and os.path.isdir(self._runs_dir / last)
        if self._wants_id and code == 0 and has_started:  # not with --dry-run or --json
            self.dismiss(last)
            return
        state = "done" if code == 0 else f"exit code {code}"
        self._pane.scroll_home(animate=False)
        label = self.query_one("#output-state", Label)
        kept = "the end of the output (the rest is not kept)" if self._is_cut else "the output"
        label.update(f"{state} · y copies {kept} · esc closes")
        label.set_class(code != 0, "complaint")

    def action_copy(self) -> None:
        app = self.app
        assert isinstance(app, BaseApp)
        app.copy(self._text, "output")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a command as Ctrl-C does, and kill it where that does not help."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        await asyncio.wait_for(process.wait(), GRACE_S)
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
