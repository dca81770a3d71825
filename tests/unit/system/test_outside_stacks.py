"""The stacks of processes that cannot answer, read from outside: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from distrain.runners.protocol.events import ThreadStack
from distrain.runners.system.outside_stacks import parse_dump, read_outside

Begin = Callable[..., subprocess.Popen[str]]
READABLE = "from distrain.runners.protocol.stacks import make_stacks_readable as begin; begin()"
# A regular expression that takes forever does not let other threads run.
BUSY = """
import re
def hold():
    print("ready", flush=True)
    re.match("(a+)+$", "a" * 40 + "b")
hold()
"""
ASLEEP = """
import time
def sleep():
    print("ready", flush=True)
    time.sleep(1000)
sleep()
"""


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that starts a program and waits until it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(*lines: str) -> subprocess.Popen[str]:
        code = "\n".join(lines)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def functions(threads: list[ThreadStack]) -> list[str]:
    return [frame.function for frame in threads[0].frames] if threads else []


@pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")
def test_a_process_that_does_not_let_go_of_pythons_lock_writes_its_stacks(begin: Begin) -> None:
    process = begin(READABLE, BUSY)
    for _ in range(2):  # the second dump follows the first one in the file
        assert functions(read_outside(process.pid))[:2] == ["<module>", "hold"]
    assert process.poll() is None


def test_a_suspended_process_is_read_by_py_spy(begin: Begin) -> None:
    process = begin(READABLE, ASLEEP)
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert functions(read_outside(process.pid)) == ["<module>", "sleep"]


@pytest.mark.parametrize("first", ["", f"{READABLE}; import os; os.closerange(3, 64)"])
def test_a_process_without_the_handler_or_its_file_gets_no_signal(first: str, begin: Begin) -> None:
    process = begin(first, ASLEEP)
    read_outside(process.pid)
    assert process.poll() is None


def test_the_current_thread_of_a_dump_is_the_main_thread() -> None:
    threads = parse_dump(
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/a b/x.py", line 7 in wait\n'
        '  File "/a b/x.py", line 3 in <module>\n\n'
        "Current thread 0x00007f00 (most recent call first):\n"
        "  <no Python frame>\n"
    )
    assert [(thread.name, len(thread.frames)) for thread in threads] == [
        ("MainThread", 0),
        ("thread 00007f01", 2),
    ]
    assert threads[1].frames[-1] == ("/a b/x.py", 7, "wait")
