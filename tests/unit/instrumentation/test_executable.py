"""A program that is not Python, and the process that starts it for a rank."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

STARTS_A_PROGRAM = """
import os, signal
from distrain.runners.instrumentation.executable import Executable
from distrain.runners.system.processes import catch_user_signals
program = Executable("true", [])
catch_user_signals(signal.SIGUSR1)
program.end_with_parent()
os.kill(os.getpid(), {number})
print(program.wait())
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_is_meant_for_the_program_does_not_end_it(number: signal.Signals) -> None:
    """As of the option --signal of sbatch; that of an orphan is SIGUSR2 too."""
    code = STARTS_A_PROGRAM.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
