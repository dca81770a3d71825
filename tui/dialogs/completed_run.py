"""What is possible with a run that has nothing left to train."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.app import App

from distrain.runners import formatting
from distrain.tui.dialogs.dialog import Answer, ChoiceDialog
from distrain.tui.dialogs.prompt import PromptDialog

NOUNS = {"train.epochs": "epoch", "train.max_steps": "step"}


def ask_how_to_continue(
    app: App[Any],
    name: str,
    limit: tuple[str, int],
    rerun: Callable[[], None],
    resume: Callable[[int], None],
) -> None:
    """Ask whether to rerun a completed run or to train it longer, and call `rerun` or `resume`.

    `limit` is the key that limits the run, and how many epochs or steps are done; `resume` takes
    the new limit.
    """
    key, done = limit
    noun = NOUNS[key]

    def answer(choice: str | None) -> None:
        if choice == "rerun":
            rerun()
        elif choice == "more":
            _ask_how_many(app, name, limit, resume)

    text = (
        f"It has completed all of its {formatting.plural(done, noun)} ({key} = {done:,}), so there "
        "is nothing left to resume. A rerun trains the same config from the start. To train it "
        f"longer, resume from its last checkpoint with more {noun}s."
    )
    answers = [
        Answer("rerun", "Rerun", "primary", "r"),
        Answer("more", f"Resume with more {noun}s", "primary", "m"),
    ]
    app.push_screen(ChoiceDialog(f"{name} is completed", text, answers), answer)


def _ask_how_many(
    app: App[Any], name: str, limit: tuple[str, int], resume: Callable[[int], None]
) -> None:
    key, done = limit

    def answer(typed: str | None) -> None:
        if typed is not None:
            resume(int(typed))

    text = f"{key}: {NOUNS[key]}s in total, of which {done:,} are done"
    check = partial(_find_problem, done)
    dialog = PromptDialog(f"Resume {name}", text, str(2 * done), check, "Resume")
    app.push_screen(dialog, answer)


def _find_problem(done: int, typed: str) -> str:
    if typed.strip().isdecimal() and int(typed) > done:
        return ""
    return f"enter a whole number above {done:,}"
