"""The app's stories in a real terminal (tmux), with real trainings behind it."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.tui.terminal import Terminal, terminal_in

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
    terminal.until("are busy", "first", "Queue", "Start anyway")
    terminal.press("Enter")
    terminal.until("queued", "CPU", "first")
    terminal.distrain("stop", "first", "--wait")
    terminal.until("completed", "100 %")


def test_a_rerun_on_busy_devices_asks_and_sees_when_they_are_free(terminal: Terminal) -> None:
    terminal.distrain("run", "ddp", "--set", "train.epochs=4000", "--name", "first", "--detach")
    terminal.open()
    terminal.until("1 run", "first", "%")
    terminal.press("R")
    terminal.until("is still running")
    terminal.press("r")
    terminal.until("The devices of rerun of first are busy", "(first)", "Queue", "Start anyway")
    terminal.press("Escape")
    terminal.until_gone("Start anyway")
    terminal.press("r")
    terminal.until("are busy", "(first)")
    terminal.distrain("stop", "first", "--wait")
    terminal.until("Nothing is in the way any more.")
    terminal.press("Enter")
    terminal.until("● running", "first", "ETA")


def test_the_command_line_and_the_environment_are_obeyed(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("what follows")
    assert terminal.is_set("mouse_any_flag")
    assert not terminal.is_grey()
    terminal.close()
    terminal.environment["NO_COLOR"] = "1"
    terminal.open("--no-mouse")
    terminal.until("what follows")
    assert not terminal.is_set("mouse_any_flag")
    assert terminal.is_grey()
    terminal.close()
    terminal.open("nope", shell=True)
    terminal.until("distrain-tui: there is no run or bench in", "it left with 2")


def test_without_its_terminal_the_app_is_gone_though_hangups_were_ignored(
    terminal: Terminal,
) -> None:
    terminal.open(nohup=True)
    terminal.until("what follows")
    app = terminal.app()
    terminal.close()
    app.wait(60)


def test_who_ends_the_app_finds_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.open(shell=True)
    terminal.until("what follows")
    assert terminal.is_set("alternate_on")
    child = terminal.app().children()[0]
    child.send_signal(signal.SIGTERM)
    terminal.until("it left with 143")
    assert not terminal.is_set("alternate_on")
    assert not terminal.is_set("mouse_any_flag")


def test_an_app_whose_terminal_goes_does_not_stay(terminal: Terminal) -> None:
    terminal.open()
    terminal.until("what follows")
    app = terminal.app()
    terminal.close()
    app.wait(60)


def test_the_table_does_everything_to_a_run_and_is_found_as_it_was_left(
    terminal: Terminal,
) -> None:
    settings = terminal.folder / "config" / "settings.toml"
    settings.parent.mkdir()
    settings.write_text("bell = true\n")
    terminal.distrain("run", "single", "--set", "train.epochs=4000", "--name", "long", "--detach")
    terminal.open()
    # Stopped, which rings, and taken up where it was.
    terminal.until("1 run · 1 live", "long", "top1")
    terminal.press("s")
    terminal.until("Stop long?")
    terminal.press("Enter")
    terminal.until("long: stopped on request")
    assert terminal.is_set("window_bell_flag")
    before = json.loads(terminal.distrain("show", "long", "--json"))
    terminal.press("R")
    terminal.until("running", "evaluated:")
    terminal.press("s")
    terminal.until("Stop long?")
    terminal.press("Right", "Enter")
    terminal.until("■ stopped")
    after = json.loads(terminal.distrain("show", "latest", "--json"))
    assert after["run_id"] != before["run_id"]
    assert after["steps"] > before["steps"]
    terminal.press("Escape")
    # Noted: what it is called, why it was run, and under which words it is found.
    terminal.until("2 runs")
    terminal.press("End", "e")
    terminal.until("About", "notes", "tags")
    for text in ("first", "warm-up", "paper,keep"):
        terminal.write(text)
        terminal.press("Tab")
    terminal.press("Enter")
    terminal.until("first", "warm-up #paper #keep")
    terminal.press("/")
    terminal.until("words to find")
    terminal.write("warm-up keep")
    terminal.until("1 of 2 runs", "first")
    terminal.press("Escape")
    terminal.until("long")
    # The other way round, and one on top.
    terminal.press("O")
    terminal.until("↑age")
    terminal.press("End", "p")
    terminal.until("↥")
    terminal.press("q")
    terminal.close()
    terminal.open()
    text = terminal.until("2 runs", "↑age", "first")
    pinned, other = (line for line in text.splitlines() if "single" in line)
    assert "↥" in pinned
    assert "long" in pinned
    assert "first" in other
    # The same config once more.
    terminal.press("r")
    terminal.until("● running", "single · inline")


# The second rank takes its time; both say what they do.
LAME = """
import os, time
from models.classification import Classification

class Lame(Classification):
    said = 0

    def loss(self, model, batch):
        self.said += 1
        print(f"batch {self.said:04} is here", flush=True)
        time.sleep(0.08 if os.environ["RANK"] == "1" else 0.01)
        return super().loss(model, batch)

def lame(model, data):
    return Lame(model, data)
"""


@pytest.fixture(scope="module")
def lame(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A run that goes on while it is looked at."""
    with terminal_in(tmp_path_factory.mktemp("lame")) as found:
        (found.folder / "lame.py").write_text(LAME)
        more = ("--set", "train.epochs=300", "--name", "lame", "--detach")
        found.distrain("run", "ddp", "--set", "task.name=lame:lame", *more)
        yield found


def test_one_look_tells_how_it_does_and_who_holds_the_others_back(lame: Terminal) -> None:
    lame.open("lame")
    whole = ("● running", "epoch", "/300", "/3,600", "━", "ETA", "loss ", "samples/s", "top1")
    ranks = ("cpu:0", "cpu:1", "www", "fff", "rank 1 holds the others back", "◀")
    machine = ("CPU", "load", "memory", "GiB of", "● rank 0", "■ rank 1", "% of a core")
    lame.until(*whole, *ranks, *machine)
    # As small or large as one likes, without a break.
    lame.resize(80, 24)
    lame.until(*whole[:6], *ranks, "tab: 4 more")
    lame.resize(200, 50)
    lame.until(*whole, *ranks, *machine, "data compute  wait optim")
    lame.close()


def test_plots_and_logs_are_looked_at_closer(lame: Terminal) -> None:
    lame.open("lame")
    lame.until("training loss", "○ all", "● rank 0", "■ rank 1", "throughput", "evaluation")
    # By time, smoothed, logarithmic: how it was looked at is how it is looked at the next time.
    lame.press("x", "x", "g", "w")
    lame.until("smooth 1 · log y · time")
    lame.press("q")
    lame.close()
    lame.open("lame")
    lame.until("smooth 1 · log y · time")
    # A log that grows: it stays where one reads, says what came, and goes on at the end.
    lame.press("l")
    lame.until("batch", "follows")
    lame.press("PPage")
    lame.until("new lines")
    lame.press("/")
    lame.until("words to find")
    lame.write("batch 0040")
    lame.until("batch 0040 is here", " of ")
    lame.press("Escape")
    lame.until("s Stop")
    lame.press("y")
    lame.until("lines copied")
    assert "batch 0040 is here\n" in lame.clipboard()
    lame.press("C-s")
    lame.until("Save the log of rank 0")
    lame.press("Enter")
    lame.until("saved to")
    assert "batch 0040 is here\n" in next(lame.folder.glob("*-rank-0.log")).read_text()
    lame.press("]", "End")
    lame.until("■ rank 1", "follows")
    # The curves, now that they stand still.
    lame.press("l", "s")
    lame.until("Stop lame?")
    lame.press("Enter")
    lame.until("■ stopped")
    lame.press("x", "g", "w", "w", "w")
    whole = ticks(lame.until_it(lambda text: text.count("── step ─╯") == 4, "has x by step"))

    def is_one_for_all(text: str) -> bool:
        """A step under three plots (the last evaluation may have been before it), and none of
        those that are there without a cursor.
        """
        lame.press("Left")
        return max((ticks(text) - whole).values(), default=0) >= 3

    lame.until_it(is_one_for_all, "has one cursor for all")
    lame.press("+")
    first = min(whole, key=lambda tick: float(tick.replace(",", "")))
    near = ticks(lame.until_it(lambda text: first not in ticks(text), "is zoomed"))
    lame.press("[")
    lame.until_it(lambda text: ticks(text) != near, "has moved to the left")
    lame.press("0")
    lame.until_it(lambda text: ticks(text) == whole, "is whole again")
    lame.press("f")
    lame.until_gone("throughput")
    lame.press("Escape")
    lame.until("throughput", "training loss")
    lame.close()


def ticks(text: str) -> Counter[str]:
    """The numbers under the x axes."""
    lines = text.splitlines()
    under = [below for line, below in itertools.pairwise(lines) if "┬" in line]
    return Counter(word for line in under for word in line.split() if word[0].isdigit())
