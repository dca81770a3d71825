"""A command of a process that is killed ends with it, and no other one does."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from distrain.runners.system.bound_command import bind

PATIENCE_S = 60.0


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_command_and_its_children_end_with_the_process_that_started_it(number: int) -> None:
    owner = """
        import subprocess
        from distrain.runners.system.bound_command import bind

        command = ["sh", "-c", "trap '' INT; sleep 600 & echo $$ $!; wait"]
        process = subprocess.Popen(**bind(command), stdout=subprocess.PIPE, text=True)
        print(process.stdout.readline(), flush=True)
        process.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(owner)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = [int(pid) for pid in process.stdout.readline().split()]
        assert len(started) == 2
        assert not any(map(gone, started))
        process.send_signal(number)
    deadline = time.monotonic() + PATIENCE_S
    while not all(map(gone, started)):
        assert time.monotonic() < deadline, f"{started} outlive it"
        time.sleep(0.05)


def test_exit_code_and_output_are_those_of_the_command() -> None:
    def execute(*command: str) -> tuple[int, str]:
        done = subprocess.run(**bind(command), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert execute("sh", "-c", "echo one; exit 3") == (3, "one\n")
    assert execute("sh", "-c", "kill -9 $$") == (128 + 9, "")
    missing = "cannot execute no-such-command: No such file or directory\n"
    assert execute("no-such-command") == (127, missing)
