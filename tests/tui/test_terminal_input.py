"""What the app reads from its terminal."""

from __future__ import annotations

import signal
import subprocess
import sys

READ = """
from distrain.tui.data.terminal_input import TerminalDecoder
assert TerminalDecoder().decode("é".encode()) == "é"
TerminalDecoder().decode(b"")
"""


def test_the_end_of_the_terminal_ends_an_app_that_gets_no_signal() -> None:
    done = subprocess.run([sys.executable, "-c", READ], timeout=120)
    assert done.returncode == -signal.SIGHUP
