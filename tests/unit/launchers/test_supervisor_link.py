"""Ranks that a launcher starts as its children."""

from __future__ import annotations

import os
import signal
import sys
from subprocess import PIPE, Popen

LAUNCHER = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # where the tests run in the background it is ignored
from distrain.runners.launchers.supervisor_link import SupervisorLink
link = SupervisorLink.__new__(SupervisorLink)
command = [sys.executable, "-c", sys.argv[1]]
sys.exit(link.run_ranks(command, {0: {}, 1: {}}, forward_interrupts=True))
"""
RANK = r"""
import os, subprocess, sys
wait = r'''
import time
try:
    print("ready\n", end="")  # one call of write: the output of all ranks is one pipe
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted\n", end="")
'''
child = subprocess.Popen([sys.executable, "-uc", wait])
try:
    child.wait()
except KeyboardInterrupt:
    child.wait()
    print(os.getpgrp() == os.getpid())
"""


def test_an_interrupt_of_a_launcher_reaches_the_process_group_of_each_rank() -> None:
    """Of ranks of Horovod, and of each host whose scheduler starts them."""
    command = [sys.executable, "-c", LAUNCHER, RANK]
    with Popen(command, stdout=PIPE, text=True, start_new_session=True) as launcher:
        assert launcher.stdout
        begun = [launcher.stdout.readline() for _ in range(2)]
        os.kill(launcher.pid, signal.SIGINT)
        printed, _ = launcher.communicate()
    assert begun == ["ready\n", "ready\n"]
    assert sorted(printed.split()) == ["True", "True", "interrupted", "interrupted"]
    assert launcher.returncode == 0
