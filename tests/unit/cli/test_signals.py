"""Ctrl-C is counted, also where it comes in a storm; nohup is respected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.runners.cli.signals import Signals

STORM = """
import os, signal
from distrain.runners.cli.signals import Signals
with Signals() as signals:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
print(signals.interrupts, flush=True)
for _ in range(10):
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_one_more_ctrl_c_at_the_end_does_not_change_the_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "2\n", "")


HANG_UP = """
import os, signal
from distrain.runners.cli.signals import Signals
with Signals() as signals:
    os.kill(os.getpid(), signal.SIGHUP)
print(signals.ended_by)
"""


@pytest.mark.parametrize(("before", "ended_by"), [([], "1"), (["nohup"], "None")])
def test_a_closed_terminal_ends_a_command_except_under_nohup(
    before: list[str], ended_by: str
) -> None:
    command = ["env", "--default-signal=HUP", *before, sys.executable, "-c", HANG_UP]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"{ended_by}\n"


TERMINATED = """
import os, signal
from distrain.runners.cli.signals import Signals
with Signals() as signals:
    os.kill(os.getpid(), signal.SIGTERM)
print(signals.interrupts, signals.ended_by)
"""
AS_ROOT = ["--map-root-user"] if os.geteuid() else []
IN_A_CONTAINER = ["unshare", *AS_ROOT, "--pid", "--fork", "--mount-proc"]
CHILD = ["-c", '"$@"; exit $?', "shell"]


@pytest.mark.parametrize(
    ("around", "counted"),
    [
        (IN_A_CONTAINER, "1 None"),
        ([*IN_A_CONTAINER, "docker-init", *CHILD], "1 None"),
        ([*IN_A_CONTAINER, "sh", *CHILD], "0 15"),
        ([], "0 15"),
    ],
    ids=["first process", "child of an init", "child of a shell", "no container"],
)
def test_sigterm_is_a_ctrl_c_to_a_process_with_which_a_container_ends(
    around: list[str], counted: str, tmp_path: Path
) -> None:
    if around and subprocess.run([*IN_A_CONTAINER, "true"]).returncode:
        pytest.skip("this machine lets nobody make namespaces of processes")
    (tmp_path / "docker-init").symlink_to("/bin/sh")
    command = [*around, sys.executable, "-c", TERMINATED]
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | path)
    assert done.stdout == f"{counted}\n", done.stderr


def test_sigterm_is_no_ctrl_c_to_a_process_that_a_container_has_adopted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 2)
    with Signals() as signals:
        monkeypatch.setattr("distrain.runners.cli.signals._ends_container", lambda: True)
        os.kill(os.getpid(), signal.SIGTERM)
    assert (signals.interrupts, signals.ended_by) == (0, signal.SIGTERM)


DETACHED = """
import os, signal
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.start import detach
with Signals() as signals:
    assert detach(None, signals)
    os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
print("the id")
"""


def test_ctrl_c_changes_nothing_once_a_run_is_detached() -> None:
    done = subprocess.run([sys.executable, "-c", DETACHED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the id\n", "")


LOADING = """
import runpy, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "distrain.runners.cli.parser":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
sys.argv = ["distrain", "runs"]
runpy.run_module("distrain", run_name="__main__")
"""


def test_ctrl_c_while_the_command_line_is_loaded_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
