"""Count the keys of a burst that reach a text field: 50 in one write, as a paste or a held key.

A terminal may deliver many keys in one read. A key that opens a field is followed by keys for the
field, which Textual dispatches before the field has the focus unless the app takes care. So the
same bursts go to a bare Textual app and to ours, each in a pseudo-terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Table
from benchmarks.simulation import ended_runs
from benchmarks.terminal import Terminal

KEYS = 50
LEAVE = b"\x11"
LETTERS = "abcdefghij" * (KEYS // 10)
SETTLED_S = 3.0
# The keys before the burst, and those that the burst begins with: what is being opened by them.
BURSTS = {
    "an open field": (b"/", b""),
    "a key that opens a field": (b"", b"/"),
    "a key that opens a dialog": (b"n", b"s"),
    "a key that opens the filter of a form": (b"n", b"/"),
}
AT_EXIT = """
import json, pathlib, sys
from textual.app import App
found, leave = pathlib.Path(sys.argv.pop(1)), App.exit
def exit(app, *arguments, **options):
    found.write_text(json.dumps([line.value for line in app.screen.query("Input")]))
    leave(app, *arguments, **options)
App.exit = exit
"""
OURS = f"{AT_EXIT}\nfrom distrain.tui.command import main\nmain()"
BARE = f"""
{AT_EXIT}
from textual.screen import ModalScreen
from textual.widgets import Input, Static
class Asking(ModalScreen):
    def compose(self):
        yield Input()
class Bare(App):
    BINDINGS = [("slash", "field"), ("s", "dialog"), ("n", "nothing")]
    def compose(self):
        yield Static("nothing else")
    def action_field(self):
        line = Input()
        self.screen.mount(line)
        line.focus()
    def action_dialog(self):
        self.push_screen(Asking())
    def action_nothing(self):
        pass
Bare().run()
"""


def count_arrived(
    program: Sequence[str], folder: Path, settings: Path, before: bytes, opening: bytes
) -> int:
    """Return how many keys of a burst had their effect: the one that opens a field, and letters."""
    found = folder / "typed.json"
    with Terminal([sys.executable, "-c", program[0], str(found), *program[1:]], settings) as pty:
        pty.until(b"\x1b[?2026l")
        pty.drain(SETTLED_S)
        if before:
            pty.press(before)
            pty.drain(SETTLED_S)
        burst = opening + LETTERS[len(opening) :].encode()
        pty.press(burst)
        pty.drain(SETTLED_S)
        pty.press(LEAVE)
        pty.ended()
    typed: list[str] = json.loads(found.read_text())
    found.unlink()
    return len(opening) + max(map(len, typed)) if typed else 0


def burst(runs: Path, settings: Path, options: Any) -> tuple[list[Table], list[Any]]:
    """Return how many of the keys arrive in a bare app and in ours."""
    ended_runs(runs, 2)
    ours = [OURS, "--runs-dir", str(runs)]
    rows = []
    bursts = list(BURSTS.items())[-1:] if options.quick else BURSTS.items()
    for name, (before, opening) in bursts:
        counts = [
            count_arrived(program, settings, settings, before, opening)
            for program in ([BARE], ours)
        ]
        rows.append((name, *counts))
    title = f"tui: keys that arrive of a burst of {KEYS} in one write"
    return [Table(title, ("the burst goes to", "a bare Textual app", "distrain"), rows)], []
