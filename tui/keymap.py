"""Every key of the app, in one table: bindings, the help screen and the docs are made of it.

The same key means the same everywhere. A user may give an action another key by its id, in
`[keys]` of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from textual.binding import Binding


class Key(NamedTuple):
    """`where` is a group of the help screen; `shown` puts the key into the footer."""

    where: str
    name: str
    keys: str
    action: str
    label: str
    help: str
    shown: bool = False

    @property
    def id(self) -> str:
        """What a remapping names: "run.stop"."""
        return f"{self.where}.{self.name}"


EVERYWHERE, RUNS, RUN, PLOT, LOG, LAUNCH, COMPARE, BENCH = (
    "app",
    "runs",
    "run",
    "plot",
    "log",
    "launch",
    "compare",
    "bench",
)

TITLES = {
    EVERYWHERE: "Everywhere",
    RUNS: "Table of runs",
    RUN: "A run",
    PLOT: "Plots",
    LOG: "Logs",
    LAUNCH: "Launch",
    COMPARE: "Comparison",
    BENCH: "A bench",
}

# Groups whose keys work at the same time; the log's come before those of the plots.
TOGETHER = (
    (EVERYWHERE, RUNS),
    (EVERYWHERE, RUN, PLOT),
    (EVERYWHERE, RUN, LOG),
    (EVERYWHERE, LAUNCH),
    (EVERYWHERE, COMPARE, PLOT),
    (EVERYWHERE, BENCH),
)

KEYMAP = (
    Key(EVERYWHERE, "help", "question_mark", "help", "Help", "Explain the focused pane.", True),
    Key(EVERYWHERE, "back", "escape", "screen.leave", "Back", "Back to where you came from."),
    Key(EVERYWHERE, "new", "n", "new", "New", "Pick a preset and launch it.", True),
    Key(EVERYWHERE, "full", "f", "full", "Full screen", "The focused pane alone, and back."),
    Key(EVERYWHERE, "copy", "y", "screen.copy", "Copy", "Copy what is shown (OSC 52)."),
    Key(EVERYWHERE, "picture", "f12", "picture", "Screenshot", "Save the screen as an SVG file."),
    Key(EVERYWHERE, "quit", "q", "quit", "Quit", "Leave the app; runs go on.", True),
    # --- the table of runs
    Key(RUNS, "open", "enter", "open", "Open", "Watch the run under the cursor.", True),
    Key(RUNS, "filter", "slash", "filter", "Filter", "Only runs that contain some words.", True),
    Key(RUNS, "mark", "space", "mark", "Mark", "Mark a run, to compare or delete several.", True),
    Key(RUNS, "compare", "c", "compare", "Compare", "Lay the marked runs over each other.", True),
    Key(RUNS, "rerun", "r", "rerun", "Rerun", "The same config again, from the start."),
    Key(RUNS, "resume", "R", "resume", "Resume", "Go on from the last checkpoint."),
    Key(RUNS, "stop", "s", "stop", "Stop", "End a live run, with a checkpoint or at once."),
    Key(RUNS, "edit", "e", "edit", "Edit", "Name, notes and tags."),
    Key(RUNS, "delete", "d", "delete", "Delete", "Move to the trash."),
    Key(RUNS, "undo", "u", "undo", "Undo", "Take the last deletion back."),
    Key(RUNS, "pin", "p", "pin", "Pin", "Keep a run on top of the table."),
    Key(RUNS, "order", "o", "order", "Order", "Sort by the next column."),
    Key(RUNS, "reverse", "O", "reverse", "Reverse", "Sort the other way round."),
    # --- one run
    Key(RUN, "stop", "s", "stop", "Stop", "End the run, with a checkpoint or at once.", True),
    Key(RUN, "rerun", "r", "rerun", "Rerun", "The same config again, from the start."),
    Key(RUN, "resume", "R", "resume", "Resume", "Go on from the last checkpoint."),
    Key(RUN, "edit", "e", "edit", "Edit", "Name, notes and tags."),
    Key(RUN, "logs", "l", "logs", "Logs", "Show or hide what the ranks print.", True),
    Key(RUN, "config", "i", "config", "Config", "What the run was launched with."),
    Key(RUN, "fold", "space,enter", "fold", "Unfold", "What lies under a node, and back."),
    Key(RUN, "folds", "a", "folds", "Unfold all", "What lies under all nodes, and back."),
    # --- plots, all of a screen at once
    Key(PLOT, "axis", "x", "axis", "Axis", "x by step, epoch or time.", True),
    Key(PLOT, "log", "g", "log", "Log y", "Logarithmic y axis, and back."),
    Key(PLOT, "smooth", "w", "smooth", "Smooth", "Smoother, with the raw line behind."),
    Key(PLOT, "metric", "m", "metric", "Metric", "What this plot shows.", True),
    Key(PLOT, "in", "plus,equals_sign", "zoom(0.5)", "Zoom in", "See less, larger."),
    Key(PLOT, "out", "minus", "zoom(2)", "Zoom out", "See more."),
    Key(PLOT, "earlier", "left_square_bracket", "pan(-1)", "Earlier", "Move to the left."),
    Key(PLOT, "later", "right_square_bracket", "pan(1)", "Later", "Move to the right."),
    Key(PLOT, "whole", "0", "whole", "All", "The whole run again, no cursor."),
    Key(PLOT, "left", "left", "cursor(-1)", "Cursor", "Read values off all plots at once."),
    Key(PLOT, "right", "right", "cursor(1)", "Cursor", "The same, to the right."),
    # --- logs
    Key(LOG, "search", "slash", "search", "Search", "Find words in the log; Esc ends it.", True),
    Key(LOG, "next", "greater_than_sign", "seek(1)", "Next", "The next line that matches."),
    Key(LOG, "previous", "less_than_sign", "seek(-1)", "Previous", "The one before."),
    Key(LOG, "follow", "end,G", "follow", "Follow", "Back to the end, and stay there."),
    Key(LOG, "before", "left_square_bracket", "source(-1)", "Log before", "The rank before."),
    Key(LOG, "after", "right_square_bracket", "source(1)", "Next log", "The next rank."),
    Key(LOG, "save", "ctrl+s", "save", "Save", "Save the log as a file."),
    # --- launch
    Key(LAUNCH, "start", "ctrl+r,f5", "start", "Launch", "Start the run.", True),
    Key(LAUNCH, "install", "i", "install", "Install", "Build and install Horovod.", True),
    Key(LAUNCH, "queue", "ctrl+e", "queue", "Queue", "Start it when its devices are free.", True),
    Key(LAUNCH, "mark", "space", "mark", "Mark", "Mark a preset, to bench several.", True),
    Key(LAUNCH, "bench", "c", "bench", "Bench", "Measure the marked presets.", True),
    Key(LAUNCH, "save", "ctrl+s", "save", "Save", "Keep the preset under a name.", True),
    Key(LAUNCH, "verify", "v", "verify", "Verify", "Compare it with one plain process.", True),
    Key(LAUNCH, "reset", "ctrl+z", "reset", "Reset", "The preset's value; in the list, all."),
    Key(LAUNCH, "all", "a", "all", "Fields", "Show every field, or those in common use.", True),
    Key(LAUNCH, "filter", "slash", "filter", "Filter", "Show only fields that contain a word."),
    # --- comparison
    Key(COMPARE, "differences", "d", "differences", "All keys", "Only what differs, or all.", True),
    # --- a bench
    Key(BENCH, "stop", "s", "stop", "Stop", "End it, and its run under way.", True),
    Key(BENCH, "resume", "R", "resume", "Resume", "Go on with the next round.", True),
    Key(BENCH, "rerun", "r", "rerun", "Rerun", "The same bench again, from the start.", True),
    Key(BENCH, "open", "enter", "open", "Runs", "The contestant's runs, to open one.", True),
    Key(BENCH, "now", "t", "now", "This run", "Watch the run that is under way.", True),
    Key(BENCH, "edit", "e", "edit", "Edit", "Name, notes and tags."),
)
BY_ID = {key.id: key for key in KEYMAP}
CHANGES = {"app.new", "run.stop", "run.rerun", "run.resume"} | {
    f"bench.{name}" for name in ("stop", "rerun", "resume")
}  # of those that are shown
_ID = re.compile(r"\{([a-z]+\.[a-z]+)\}")


def keyed(text: str, app: object) -> str:
    """A text with the first keys of the actions whose ids it holds: "{run.stop} ends the run"."""
    key: Callable[[str], str] = app.key  # type: ignore[attr-defined]
    return _ID.sub(lambda found: (key(found[1]).split() or ["–"])[0], text)


def bindings(*groups: str) -> list[Binding]:
    """Textual's bindings of one or more groups of the table."""
    return [
        Binding(key.keys, key.action, key.label, show=key.shown, tooltip=key.help, id=key.id)
        for key in KEYMAP
        if key.where in groups
    ]


def hidden(keys: str, action: str, id: str | None = None) -> Binding:
    """A binding that no table needs to tell: everybody expects it, or it is what the key with
    this id does here.
    """
    return Binding(keys, action, show=False, id=id)


def of(groups: Iterable[str]) -> dict[str, list[Key]]:
    """The keys of some groups by the title of each, for the help screen."""
    return {TITLES[group]: [key for key in KEYMAP if key.where == group] for group in groups}


def pressed(id: str, keys: Mapping[str, str]) -> list[Binding]:
    """One binding for each key that an action has, to ask Textual how it is written."""
    names = [name.strip() for name in (keys.get(id) or BY_ID[id].keys).split(",")]
    return list(Binding.make_bindings([Binding(name, "none") for name in names if name]))


def complaints(keys: Mapping[str, str]) -> list[str]:
    """What is wrong with a remapping, by id: an action that is none, a key that has two."""
    unknown = [f"[keys] names {id}, which is no action" for id in keys if id not in BY_ID]
    unknown += [f"[keys] gives {id} no key" for id in keys if id in BY_ID and not pressed(id, keys)]
    return unknown + list(
        dict.fromkeys(text for groups in TOGETHER for text in _twice(groups, keys))
    )


def _twice(groups: Iterable[str], keys: Mapping[str, str]) -> Iterator[str]:
    taken: dict[str, str] = {}
    for key in KEYMAP:
        if key.where in groups:
            for binding in pressed(key.id, keys):
                other = taken.setdefault(binding.key, key.id)
                if other != key.id:
                    yield f"[keys] gives {binding.key} to both {other} and {key.id}"
