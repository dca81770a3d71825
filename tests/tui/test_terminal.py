"""The app's stories in a real terminal (tmux), with real trainings behind it."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

from tests.tui.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def test_the_first_minute(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("presets", "what follows", "$ distrain run ddp", "12 per epoch, 360 in all")
    terminal.press("Enter")
    terminal.until("running", "ddp · torchrun · fp32 · 2 ranks", "epoch", "/360", "evaluated:")
    terminal.until("completed", "100 %", "took")
    terminal.press("Escape")
    terminal.until("1 run", "360", "top1 9")


def test_a_killed_app_leaves_its_run_alone_and_finds_it_again(terminal: Terminal) -> None:
    terminal.distrain("run", "ddp", "--set", "train.epochs=2000", "--name", "long", "--detach")
    terminal.open("long")
    terminal.until("running", "long", "evaluated:")
    terminal.app().send_signal(signal.SIGKILL)
    terminal.close()
    before = json.loads(terminal.distrain("show", "long", "--json"))
    terminal.open("latest", "--readonly")
    text = terminal.until("running", "long", "evaluated:")
    assert before["steps"] > 0
    assert "step" in text
    # Who only looks on cannot stop it; another app can.
    terminal.press("s")
    terminal.until("only looks on")
    terminal.close()
    terminal.open("latest")
    terminal.until("running", "evaluated:")
    terminal.press("s")
    terminal.until("Stop long?", "checkpoint", "Now")
    terminal.press("Enter")
    terminal.until("stopped on request after step")
    after = json.loads(terminal.distrain("show", "long", "--json"))
    assert after["status"] == "stopped"
    assert after["steps"] > before["steps"]


def test_a_preset_of_ones_own_is_the_same_run_on_the_command_line(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("what follows", "$ distrain run ddp")
    terminal.press("Right")
    terminal.press("/")
    terminal.until("words in a field's name")
    terminal.press(*"batch_size", "Enter")
    terminal.until("Samples per optimizer step")
    terminal.press("Enter")
    terminal.press("BSpace", "BSpace", "BSpace", "0")
    terminal.until("must be a whole number")
    terminal.press("BSpace", *"64", "Enter")
    terminal.until("32 per rank, 64 in all", "train.batch_size=64")
    terminal.press("C-s")
    terminal.press(*"mine", "Enter")
    terminal.until("$ distrain run mine")
    terminal.press("q")
    summary = json.loads(terminal.distrain("run", "mine", "--set", "train.epochs=1", "--json"))
    assert (summary["status"], summary["steps"]) == ("completed", 23)  # 1,437 samples by 64


FAILING = """
from models.classification import Classification

class Unlucky(Classification):
    def loss(self, model, batch):
        raise ValueError("a label is out of range")

def unlucky(model, data):
    return Unlucky(model, data)
"""


def test_many_runs_are_compared_deleted_brought_back_and_explained(terminal: Terminal) -> None:
    (terminal.folder / "unlucky.py").write_text(FAILING)
    quick = ("--set", "train.epochs=1")
    terminal.distrain("run", "single", *quick, "--name", "one")
    terminal.distrain("run", "single", *quick, "--set", "train.lr=0.02", "--name", "two")
    terminal.distrain(
        "run", "single", "--set", "task.name=unlucky:unlucky", "--name", "bad", code=1
    )
    terminal.open()
    terminal.until("3 runs", "one", "two", "bad")
    # It breaks: a card, and the log of the rank.
    terminal.press("Enter")
    terminal.until("rank 0 was the first", "ValueError: a label is out of range", "try:")
    terminal.press("l")
    terminal.until("rank 0", "in loss")
    terminal.press("Escape")
    # Two runs over each other, with what differs.
    terminal.until("3 runs")
    terminal.press("Down", "Space", "Down", "Space", "c")
    terminal.until("training loss", "train.lr", "0.02")
    # A key that comes soon after Escape is Alt and that key: each has to be seen first.
    terminal.press("Escape")
    terminal.until("2 marked")
    terminal.press("Escape")
    terminal.until_gone("2 marked")
    # Into the trash and back.
    terminal.press("d")
    terminal.until("Delete one?")
    terminal.press("Enter")
    terminal.until("2 runs")
    terminal.press("u")
    terminal.until("3 runs")


def test_a_launch_on_busy_devices_may_wait_in_the_queue(terminal: Terminal) -> None:
    terminal.distrain("run", "ddp", "--set", "train.epochs=4000", "--name", "first", "--detach")
    terminal.open()
    terminal.until("1 run", "first")
    terminal.press("n")
    terminal.until("$ distrain run ddp", "12 per epoch")
    terminal.press("F5")
    terminal.until("Its devices are busy", "first", "Queue", "Start anyway")
    terminal.press("Enter")
    terminal.until("queued", "CPU", "first")
    terminal.distrain("stop", "first", "--wait")
    terminal.until("completed", "100 %")
