"""The app in a real terminal (tmux), with real runs."""

from __future__ import annotations

import itertools
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.app.conftest import LONG_RUN
from tests.support.terminal import Terminal, terminal_in

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def test_a_preset_is_launched_watched_and_listed(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("Presets", "Preview", "$ distrain run ddp", "12 per epoch, 360 in")
    terminal.press("Enter")
    terminal.until("Launch on cpu:0")
    terminal.press("Enter")
    terminal.until("running", "ddp · torchrun · fp32 · 2 ranks", "epoch", "/360", "val (epoch")
    terminal.until("completed", "100 %", "duration")
    terminal.press("Escape")
    terminal.until("1 run", "360", "top1", "eval top1")


def test_a_run_survives_a_killed_app_and_is_found_again(terminal: Terminal) -> None:
    terminal.distrain("run", "single", *LONG_RUN, "--name", "long", "--detach")
    terminal.open("long")
    terminal.until("running", "long", "val (epoch")
    terminal.app().send_signal(signal.SIGKILL)
    terminal.close()
    before = json.loads(terminal.distrain("show", "long", "--json"))
    terminal.open("latest", "--readonly")
    text = terminal.until("running", "long", "val (epoch")
    assert before["steps"] > 0
    assert "step" in text
    # A read-only app cannot stop it; another app can.
    terminal.press("s")
    terminal.until("read-only")
    terminal.close()
    terminal.open("latest")
    terminal.until("running", "val (epoch")
    terminal.press("s")
    terminal.until("Stop long?", "checkpoint", "Stop now")
    terminal.press("Right", "Enter")
    terminal.until("stopped on request after step")
    after = json.loads(terminal.distrain("show", "long", "--json"))
    assert after["status"] == "stopped"
    assert after["steps"] > before["steps"]


def test_a_saved_preset_is_the_same_run_on_the_command_line(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("Preview", "$ distrain run ddp")
    terminal.press("Right")
    terminal.press("/")
    terminal.until("words in name or description")
    terminal.press(*"batch_size", "Enter")
    terminal.until("Samples per optimizer step")
    terminal.press("Enter")
    terminal.press("BSpace", "BSpace", "BSpace", "0")
    terminal.until("must be a whole number")
    terminal.press("BSpace", *"64", "Enter")
    terminal.until("32 per rank, 64 in total", "train.batch_size=64")
    terminal.press("C-s")
    terminal.press(*"mine", "Enter")
    terminal.until("$ distrain run mine")
    terminal.press("q")
    summary = json.loads(terminal.distrain("run", "mine", "--set", "train.epochs=1", "--json"))
    assert (summary["status"], summary["steps"]) == ("completed", 23)  # 1,437 samples by 64


FAILING = """
from distrain.models.classification import Classification

class Unlucky(Classification):
    def loss(self, model, batch):
        raise ValueError("a label is out of range")

def unlucky(model, data):
    return Unlucky(model, data)
"""


def test_runs_are_explained_compared_deleted_and_restored(terminal: Terminal) -> None:
    (terminal.folder / "unlucky.py").write_text(FAILING)
    quick = ("--set", "train.epochs=1")
    terminal.distrain("run", "single", *quick, "--name", "one")
    terminal.distrain("run", "single", *quick, "--set", "train.lr=0.02", "--name", "two")
    terminal.distrain(
        "run", "single", "--set", "task.name=unlucky:unlucky", "--name", "bad", code=1
    )
    terminal.open()
    terminal.until("3 runs", "one", "two", "bad")
    # The failed run has a card, and the log of its rank.
    terminal.press("Enter")
    terminal.until("rank 0 failed first", "ValueError: a label is out of range", "try:")
    terminal.press("l")
    terminal.until("rank 0", "in loss")
    terminal.press("Escape")
    # Two runs are overlaid, with their differences.
    terminal.until("3 runs")
    terminal.press("Down", "Space", "Down", "Space", "c")
    terminal.until("Training loss", "train.lr", "0.02")
    # A key soon after Escape would be read as Alt and that key: wait for the effect of Escape.
    terminal.press("Escape")
    terminal.until("2 marked")
    terminal.press("Escape")
    terminal.until_gone("2 marked")
    # Move it to the trash and restore it.
    terminal.press("d")
    terminal.until("Move one to the trash?")
    terminal.press("Right", "Enter")
    terminal.until("2 runs")
    terminal.press("u")
    terminal.until("3 runs")


def test_a_launch_on_busy_devices_can_be_queued(terminal: Terminal) -> None:
    terminal.distrain("run", "ddp", *LONG_RUN, "--name", "first", "--detach")
    terminal.open()
    terminal.until("1 run", "first")
    terminal.press("n")
    terminal.until("$ distrain run ddp", "12 per epoch")
    terminal.press("F5")
    terminal.until("are busy", "first", "Queue (^e)", "Start anyway")
    terminal.press("Enter")  # Cancel has the focus
    terminal.until_gone("are busy")
    terminal.press("F5")
    terminal.until("are busy")
    terminal.press("C-e")
    terminal.until("queued", "CPU", "first")
    terminal.distrain("stop", "first", "--wait")
    terminal.until("completed", "100 %")


def test_a_rerun_on_busy_devices_asks_and_notices_when_they_are_free(terminal: Terminal) -> None:
    terminal.distrain("run", "ddp", *LONG_RUN, "--name", "first", "--detach")
    terminal.open()
    terminal.until("1 run", "first", "%")
    terminal.press("R")
    terminal.until("is still running")
    terminal.press("r")
    terminal.until("Devices needed to rerun first are busy", "(first)", "Queue", "Start anyway")
    terminal.press("Escape")
    terminal.until_gone("Start anyway")
    terminal.press("r")
    terminal.until("are busy", "(first)")
    terminal.distrain("stop", "first", "--wait")
    terminal.until("All devices are free now.")
    terminal.press("Right", "Enter")
    terminal.until("● running", "first", "ETA")


def test_options_and_environment_of_the_app(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("Preview")
    assert terminal.is_set("mouse_any_flag")
    assert not terminal.is_grey()
    terminal.close()
    terminal.environment["NO_COLOR"] = "1"
    terminal.environment["PYTHONIOENCODING"] = "latin-1"
    terminal.open("--no-mouse")
    assert "\\u" not in terminal.until("Preview")
    assert not terminal.is_set("mouse_any_flag")
    assert terminal.is_grey()
    terminal.close()
    terminal.open("nope", shell=True)
    terminal.until("distrain-tui: there is no run or bench in", "it left with 2")


@pytest.mark.parametrize("redirection", ["2>errors", "<&- >&- 2>errors"])
def test_the_app_needs_a_terminal_for_all_streams(tmp_path: Path, redirection: str) -> None:
    ours, theirs = pty.openpty()
    command = f"{shlex.join([sys.executable, '-m', 'distrain.tui'])} {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, stdin=theirs, stdout=theirs, timeout=60
    )
    os.close(ours)
    os.close(theirs)
    message = "distrain-tui needs a terminal; use `distrain watch` without one\n"
    assert (done.returncode, (tmp_path / "errors").read_text()) == (2, message)


def test_the_app_ends_with_its_terminal_even_under_nohup(
    terminal: Terminal,
) -> None:
    terminal.open(nohup=True)
    terminal.until("Preview")
    app = terminal.app()
    terminal.close()
    app.wait(120)


def test_the_terminal_is_restored_after_sigterm(terminal: Terminal) -> None:
    terminal.open(shell=True)
    terminal.until("Preview")
    assert terminal.is_set("alternate_on")
    child = terminal.app().children()[0]
    child.send_signal(signal.SIGTSTP)  # as `kill -TSTP`, and fg
    terminal.until_gone("Preview")
    child.send_signal(signal.SIGCONT)
    terminal.until("Presets", "Preview", "Palette")
    child.send_signal(signal.SIGTERM)
    terminal.until("it left with 143")
    assert not terminal.is_set("alternate_on")
    assert not terminal.is_set("mouse_any_flag")


def test_the_app_ends_with_its_terminal(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("Preview")
    app = terminal.app()
    terminal.close()
    app.wait(120)


def open_shell(terminal: Terminal, shell: str) -> None:
    """Start the app and open a shell of the user's in place of it."""
    (terminal.folder / "runs").mkdir()
    terminal.environment["SHELL"] = shell
    terminal.open(shell=True)
    terminal.until("Preview")
    terminal.press("!")
    terminal.until("`exit` returns")


def test_a_shell_that_is_killed_gives_the_terminal_back(terminal: Terminal) -> None:
    shell = terminal.folder / "shell"
    shell.write_text("#!/bin/bash -i\nsleep 5\nkill -9 $$\n")
    shell.chmod(0o755)
    open_shell(terminal, str(shell))
    terminal.until("Preview")
    terminal.press("q")
    terminal.until("it left with 0")


def test_keys_that_send_signals_reach_only_a_shell_without_job_control(terminal: Terminal) -> None:
    shell = terminal.folder / "shell"
    shell.write_text("#!/bin/sh\ntrap 'echo interrupted' INT\necho ready\ncat\ncat\nexit\n")
    shell.chmod(0o755)
    open_shell(terminal, str(shell))
    terminal.until("ready")
    terminal.press("C-c")
    terminal.until("interrupted")
    terminal.press("C-d")
    terminal.until("Preview")


def test_the_app_ends_with_its_terminal_while_a_shell_is_open(terminal: Terminal) -> None:
    open_shell(terminal, "/bin/bash")
    app = terminal.app().children()[0]  # SIGHUP is sent to its parent
    terminal.close()
    app.wait(120)


def test_every_action_of_the_table_and_its_settings(
    terminal: Terminal,
) -> None:
    settings = terminal.folder / "config" / "settings.toml"
    settings.write_text("bell = true\ntour_shown = true\n")
    terminal.distrain("run", "single", *LONG_RUN, "--name", "long", "--detach")
    terminal.open()
    # Stop it, which rings the bell, and resume it.
    terminal.until("1 run · 1 live", "long", "top1")
    terminal.press("s")
    terminal.until("Stop long?")
    terminal.press("Right", "Enter")
    terminal.until("long: stopped on request")
    assert terminal.is_set("window_bell_flag")
    before = json.loads(terminal.distrain("show", "long", "--json"))
    terminal.press("R")
    terminal.until("Resume long?", "Launch (l)")
    terminal.press("l")
    terminal.until("running", "val (epoch")
    terminal.press("s")
    terminal.until("Stop long?")
    terminal.press("Right", "Right", "Enter")
    terminal.until("■ stopped")
    after = json.loads(terminal.distrain("show", "latest", "--json"))
    assert after["run_id"] != before["run_id"]
    assert after["steps"] > before["steps"]
    terminal.press("Escape")
    # Edit name, notes and tags, and find the run by them.
    terminal.until("2 runs")
    terminal.press("End", "e")
    terminal.until("Edit 2", "notes", "tags")
    for text in ("first", "warm-up", "paper,keep"):
        terminal.write(text)
        terminal.press("Tab")
    terminal.press("Enter")
    terminal.until("first", "warm-up #paper #keep")
    terminal.press("/")
    terminal.until("words, lr>0.1")
    terminal.write("warm-up keep")
    terminal.until("1 of 2 runs", "first")
    terminal.press("Escape")
    terminal.until("long")
    # Reverse the order and pin a run.
    terminal.press("O")
    terminal.until("↑age")
    terminal.press("End", "p")
    terminal.until("↥")
    terminal.press("q")
    terminal.close()
    terminal.open()
    text = terminal.until("2 runs", "↑age", "first")
    (pinned,) = (line for line in text.splitlines() if "↥" in line)
    assert "long" in pinned
    # Rerun it.
    terminal.press("r")
    terminal.until("Rerun long?", "Launch (l)")
    terminal.press("l")
    terminal.until("● running", "single · inline")


# Rank 1 is slow; both ranks print each batch.
STRAGGLING = """
import os, time
from distrain.models.classification import Classification

class Straggling(Classification):
    batches = 0

    def loss(self, model, batch):
        self.batches += 1
        print(f"batch {self.batches:04} is here", flush=True)
        time.sleep(0.08 if os.environ["RANK"] == "1" else 0.01)
        return super().loss(model, batch)

def straggling(model, data):
    return Straggling(model, data)
"""


@pytest.fixture
def straggling(tmp_path: Path) -> Iterator[Terminal]:
    """Return a terminal with a live run that has a straggler."""
    with terminal_in(tmp_path) as found:
        (found.folder / "straggling.py").write_text(STRAGGLING)
        more = ("--set", "train.epochs=300", "--name", "straggling", "--detach")
        found.distrain("run", "ddp", "--set", "task.name=straggling:straggling", *more)
        yield found


def test_the_run_screen_shows_progress_and_the_straggler(straggling: Terminal) -> None:
    straggling.open("straggling")
    whole = ("● running", "epoch", "/300", "/3,600", "━", "ETA", "loss ", "samples/s", "top1")
    ranks = ("cpu:0", "cpu:1", "www", "fff", "straggler: rank 1", "◀")
    machine = ("CPU", "load", "memory", "GiB of", "● rank 0", "■ rank 1", "% of a core")
    straggling.until(*whole, *ranks, *machine)
    # It fits a small and a large terminal.
    straggling.resize(80, 24)
    straggling.until(*whole[:6], *ranks, "4 more panes (tab)")
    straggling.resize(200, 50)
    straggling.until(*whole, *ranks, *machine, "data compute comm wait optim")
    straggling.close()


def test_plots_and_logs_in_detail(straggling: Terminal) -> None:
    straggling.open("straggling")
    straggling.until("Training loss", "○ mean of ranks", "● rank 0", "■ rank 1", "Evaluation")
    # Axis, smoothing and scale are remembered.
    straggling.press("x", "x", "g", "w")
    straggling.until("EMA 0.6 · log y · values at ")
    straggling.press("q")
    straggling.close()
    straggling.open("straggling")
    straggling.until("EMA 0.6 · log y · values at ")
    # A growing log keeps its position, counts new lines, and follows again at the end.
    straggling.press("l")
    straggling.until("batch", "following")
    straggling.press("PPage")
    straggling.until("new lines")
    straggling.press("/")
    straggling.until("words to find")
    straggling.write("batch 0040")
    straggling.until("batch 0040 is here", " of ")
    straggling.press("Escape")
    straggling.until("s Stop")
    straggling.press("y")
    straggling.until("lines copied")
    assert "batch 0040 is here\n" in straggling.clipboard()
    straggling.press("C-s")
    straggling.until("Save the log of rank")  # that of the rank which has printed last
    straggling.press("Enter")
    straggling.until_gone("Save the log of rank")
    straggling.until("saved ")
    assert "batch 0040 is here\n" in next(straggling.folder.glob("*-rank-?.log")).read_text()
    straggling.press("]", "[", "End")  # the next log may be empty, as the supervisor's
    straggling.until("following")
    # The curves, once the run has stopped.
    straggling.press("l", "s")
    straggling.until("Stop straggling?")
    straggling.press("Right", "Enter")
    straggling.until("■ stopped")
    straggling.press("x", "g", "w", "w", "w")
    straggling.until_gone("▌ straggling")  # the message may hide numbers
    whole = ticks(
        straggling.until_it(lambda text: text.count("values at step") == 4, "has x by step")
    )

    def is_shared(text: str) -> bool:
        """Return whether at least three plots show the same step that is not a tick.

        The plot of evaluations may end before it.
        """
        straggling.press("Left")
        return max((ticks(text) - whole).values(), default=0) >= 3

    straggling.until_it(is_shared, "has one cursor for all")
    straggling.press("+")
    first = min(whole, key=lambda tick: float(tick.replace(",", "")))
    near = ticks(straggling.until_it(lambda text: first not in ticks(text), "is zoomed"))
    straggling.press("[")
    straggling.until_it(lambda text: ticks(text) != near, "has moved to the left")
    straggling.press("0")
    straggling.until_it(lambda text: ticks(text) == whole, "is whole again")
    straggling.press("f")
    straggling.until_gone("Throughput")
    straggling.press("Escape")
    straggling.until("Throughput", "Training loss")
    straggling.close()


def ticks(text: str) -> Counter[str]:
    """Return the numbers under the x axes."""
    lines = text.splitlines()
    under = [below for line, below in itertools.pairwise(lines) if "┬" in line]
    return Counter(word for line in under for word in line.split() if word[0].isdigit())
