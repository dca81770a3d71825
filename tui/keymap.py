"""All keys of the app in one table, from which bindings, the help dialog and the docs are made.

A key means the same on every screen. Users can give an action other keys by its id, in `[keys]` of
the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from textual.binding import Binding
from textual.keys import REPLACED_KEYS, Keys, key_to_character

from distrain.models.errors import nearest


class Key(NamedTuple):
    """An action and its keys (as Textual names them, separated by commas).

    `group` says where the keys work, and is a section of the help dialog; `shown` puts the action
    into the footer.
    """

    group: str
    name: str
    keys: str
    action: str
    label: str
    help: str
    shown: bool = False

    @property
    def id(self) -> str:
        """Return the id that settings use, such as "run.stop"."""
        return f"{self.group}.{self.name}"


EVERYWHERE = "app"
RUNS = "runs"
RUN = "run"
PLOT = "plot"
LOG = "log"
LOG_SEARCH = "search"
LAUNCH = "launch"
STACKS = "stacks"
COMPARE = "compare"
GROUP = "group"
QUEUE = "queue"
BENCH = "bench"
VERIFY = "verify"

TITLES = {
    EVERYWHERE: "Everywhere",
    RUNS: "Table of runs",
    RUN: "Run",
    PLOT: "Plots",
    LOG: "Logs",
    LOG_SEARCH: "While a log is searched",
    STACKS: "Stacks of ranks",
    LAUNCH: "Launch",
    COMPARE: "Comparison",
    GROUP: "Group of runs",
    QUEUE: "Queue",
    BENCH: "Bench",
    VERIFY: "Verification",
}

# Groups whose keys work at the same time; where logs and plots share a key, the focused pane
# decides. While a log is searched and has the focus, its two keys come first, as in `less`.
TOGETHER = (
    (EVERYWHERE, RUNS),
    (EVERYWHERE, RUN, PLOT),
    (EVERYWHERE, RUN, LOG),
    (RUN, LOG, LOG_SEARCH),
    (EVERYWHERE, STACKS),
    (EVERYWHERE, LAUNCH),
    (EVERYWHERE, COMPARE, PLOT),
    (EVERYWHERE, GROUP, COMPARE, PLOT),
    (EVERYWHERE, QUEUE),
    (EVERYWHERE, BENCH),
    (EVERYWHERE, VERIFY),
)

KEYMAP = (
    Key(EVERYWHERE, "help", "question_mark", "help", "Help", "Explain the focused pane.", True),
    Key(EVERYWHERE, "back", "escape", "screen.leave", "Back", "Go back to the previous screen."),
    Key(EVERYWHERE, "new", "n", "new", "New", "Choose a preset and launch it.", True),
    Key(EVERYWHERE, "full", "f", "full", "Full screen", "Maximize or restore the focused pane."),
    Key(EVERYWHERE, "copy", "y", "screen.copy", "Copy", "Copy a value, a line, an id …"),
    Key(EVERYWHERE, "palette", "ctrl+p", "command_palette", "Palette", "Search all actions.", True),
    Key(EVERYWHERE, "command", "colon", "command", "Command", "Type an action or a command."),
    Key(EVERYWHERE, "jump", "ctrl+o", "jump", "Jump", "Label all panes and fields."),
    Key(
        EVERYWHERE,
        "shell",
        "exclamation_mark",
        "shell",
        "Shell",
        "Open a shell in a run's folder.",
    ),
    Key(EVERYWHERE, "history", "N", "history", "What happened", "List what ended or started."),
    Key(EVERYWHERE, "picture", "f12", "picture", "Screenshot", "Save the screen as an SVG file."),
    Key(EVERYWHERE, "quit", "q,ctrl+q", "quit", "Quit", "Quit the app; runs continue.", True),
    # --- the table of runs
    Key(RUNS, "open", "enter", "open", "Open", "Open the run under the cursor.", True),
    Key(RUNS, "filter", "slash", "filter", "Filter", "Show only runs that match.", True),
    Key(RUNS, "filters", "F", "filters", "Saved filters", "Choose a saved filter."),
    Key(RUNS, "save", "ctrl+s", "save", "Save filter", "Save the filter under a name."),
    Key(RUNS, "mark", "space", "mark", "Mark", "Mark a run, to compare or delete several.", True),
    Key(RUNS, "compare", "c", "compare", "Compare", "Compare marked runs or a group.", True),
    Key(RUNS, "group", "b", "group", "Group by", "Group the runs by a key.", True),
    Key(RUNS, "folds", "a", "folds", "Fold all", "Fold or unfold all groups."),
    Key(RUNS, "columns", "C", "columns", "Columns", "Choose the columns.", True),
    Key(RUNS, "preview", "P", "preview", "Preview", "Show or hide the preview of the run."),
    Key(RUNS, "queue", "Q", "queue", "Queue", "Show which runs wait for devices, in order."),
    Key(RUNS, "rerun", "r", "rerun", "Rerun", "Start the same config again."),
    Key(RUNS, "resume", "R", "resume", "Resume", "Continue from the last checkpoint."),
    Key(RUNS, "stop", "s", "stop", "Stop", "Stop a live run, with or without a checkpoint."),
    Key(RUNS, "edit", "e", "edit", "Edit", "Edit name, notes and tags."),
    Key(RUNS, "delete", "d", "delete", "Delete", "Move runs to the trash."),
    Key(RUNS, "undo", "u", "undo", "Undo", "Restore what was deleted last."),
    Key(RUNS, "pin", "p", "pin", "Pin", "Pin a run to the top of the table."),
    Key(RUNS, "order", "o", "order", "Sort", "Sort by the next column."),
    Key(RUNS, "reverse", "O", "reverse", "Reverse", "Reverse the sort order."),
    # --- one run
    Key(RUN, "stop", "s", "stop", "Stop", "Stop the run, with or without a checkpoint.", True),
    Key(RUN, "rerun", "r", "rerun", "Rerun", "Start the same config again."),
    Key(RUN, "resume", "R", "resume", "Resume", "Continue from the last checkpoint."),
    Key(RUN, "edit", "e", "edit", "Edit", "Edit name, notes and tags."),
    Key(RUN, "logs", "l", "logs", "Logs", "Show or hide the logs of the ranks.", True),
    Key(RUN, "stacks", "h", "stacks", "Stacks", "Show the stacks of all ranks.", True),
    Key(RUN, "export", "E", "export", "Export", "Write the measurements to a file."),
    Key(RUN, "config", "i", "config", "Config", "Show config, plan and provenance."),
    Key(RUN, "fold", "space,enter", "fold", "Unfold", "Unfold or fold the node under the cursor."),
    Key(RUN, "folds", "a", "folds", "Unfold all", "Unfold or fold all nodes."),
    # --- plots, all of a screen at once
    Key(PLOT, "axis", "x", "axis", "Axis", "Change the x axis: step, epoch or time.", True),
    Key(PLOT, "log", "g", "log", "Log y", "Switch the logarithmic y axis on or off."),
    Key(PLOT, "outliers", "B", "cut", "Outliers", "Cut outliers off the y axis, or show all."),
    Key(PLOT, "smooth", "w", "smooth", "Smooth", "Smooth the lines more, or not at all."),
    Key(PLOT, "solo", "z", "solo", "One line", "Show one line after another, then all again."),
    Key(PLOT, "others", "I", "others", "Other lines", "Show the hidden lines and hide the others."),
    Key(PLOT, "metric", "m", "metric", "Metric", "Choose the metric of this plot.", True),
    Key(PLOT, "in", "plus,equals_sign", "zoom(0.5)", "Zoom in", "Show half the x range."),
    Key(PLOT, "out", "minus", "zoom(2)", "Zoom out", "Show twice the x range."),
    Key(PLOT, "earlier", "left_square_bracket", "pan(-1)", "Pan left", "Move the x range left."),
    Key(PLOT, "later", "right_square_bracket", "pan(1)", "Pan right", "Move the x range right."),
    Key(PLOT, "whole", "0", "whole", "Show all", "Show the whole run; hide the cursor."),
    Key(PLOT, "in-y", "shift+up", "zoom_y(0.5)", "Zoom in y", "Show half the y range."),
    Key(PLOT, "out-y", "shift+down", "zoom_y(2)", "Zoom out y", "Show twice the y range."),
    Key(PLOT, "up", "up", "pan_y(1)", "Pan up", "Move the y range up."),
    Key(PLOT, "down", "down", "pan_y(-1)", "Pan down", "Move the y range down."),
    Key(PLOT, "left", "left", "cursor(-1)", "Cursor left", "Move the cursor to the left."),
    Key(PLOT, "right", "right", "cursor(1)", "Cursor right", "Move the cursor to the right."),
    # --- logs
    Key(LOG, "search", "slash", "search", "Search", "Search the log; Esc ends the search.", True),
    Key(LOG, "follow", "end,G", "follow", "Follow", "Go to the end and follow new lines."),
    Key(
        LOG, "before", "left_square_bracket", "source(-1)", "Previous log", "Show the previous log."
    ),
    Key(
        LOG,
        "after",
        "right_square_bracket",
        "source(1)",
        "Next log",
        "Show the next log.",
    ),
    Key(LOG, "save", "ctrl+s", "save", "Save", "Save the log as a file."),
    # --- a log that is searched
    Key(LOG_SEARCH, "next", "n", "seek(1)", "Next match", "Go to the next match."),
    Key(LOG_SEARCH, "previous", "N", "seek(-1)", "Previous match", "Go to the previous match."),
    # --- stacks
    Key(STACKS, "again", "h", "again", "Read again", "Read the stacks of all ranks again.", True),
    # --- launch
    Key(LAUNCH, "start", "ctrl+r,f5", "start", "Launch", "Launch the preset.", True),
    Key(LAUNCH, "script", "s", "script", "Script", "Add a script or a preset file.", True),
    Key(LAUNCH, "install", "i", "install", "Install", "Build and install Horovod.", True),
    Key(LAUNCH, "queue", "ctrl+e", "queue", "Queue", "Launch when the devices are free.", True),
    Key(LAUNCH, "mark", "space", "mark", "Mark", "Mark a preset or script for a bench.", True),
    Key(LAUNCH, "bench", "c", "bench", "Bench", "Compare the speed of presets and scripts.", True),
    Key(LAUNCH, "save", "ctrl+s", "save", "Save", "Save the preset under a name.", True),
    Key(LAUNCH, "verify", "v", "verify", "Verify", "Compare with one plain process.", True),
    Key(LAUNCH, "reset", "ctrl+z", "reset", "Reset", "Reset the field; in the list, the preset."),
    Key(
        LAUNCH,
        "all",
        "a,ctrl+l",
        "all",
        "Fields",
        "Show all fields, or only the common ones.",
        True,
    ),
    Key(
        LAUNCH,
        "filter",
        "slash,ctrl+f",
        "filter",
        "Filter",
        "Show only fields that contain a word.",
    ),
    # --- comparison
    Key(COMPARE, "differences", "d", "differences", "All keys", "Show equal keys as well.", True),
    # --- a group of runs
    Key(GROUP, "open", "enter", "open", "Open", "Open the run under the cursor.", True),
    Key(GROUP, "stop", "s", "stop", "Stop", "Stop all runs of the group.", True),
    # --- the queue
    Key(QUEUE, "open", "enter", "open", "Open", "Open the run under the cursor.", True),
    Key(QUEUE, "up", "K", "step('up')", "Move up", "Let the run start earlier.", True),
    Key(QUEUE, "down", "J", "step('down')", "Move down", "Let the run start later.", True),
    Key(QUEUE, "stop", "s", "stop", "Remove", "Remove a run from the queue, or stop it.", True),
    # --- a bench
    Key(BENCH, "stop", "s", "stop", "Stop", "Stop the bench and its current run.", True),
    Key(BENCH, "resume", "R", "resume", "Resume", "Continue with the next round.", True),
    Key(BENCH, "rerun", "r", "rerun", "Rerun", "Start the same bench again.", True),
    Key(BENCH, "open", "enter", "open", "Runs", "Open a run of the candidate.", True),
    Key(BENCH, "now", "t", "now", "Current run", "Open the run in progress.", True),
    Key(BENCH, "edit", "e", "edit", "Edit", "Edit name, notes and tags."),
    # --- a verification
    Key(VERIFY, "stop", "s", "stop", "Stop", "Stop the verification.", True),
)
BY_ID = {key.id: key for key in KEYMAP}
# Actions that change something: neither in the footer nor in the palette of a read-only app.
CHANGES = {
    "app.new",
    "app.shell",
    "runs.rerun",
    "runs.resume",
    "runs.stop",
    "runs.edit",
    "runs.delete",
    "runs.undo",
    "runs.pin",
    "run.edit",
    "bench.edit",
    "run.stop",
    "run.rerun",
    "run.resume",
    "bench.stop",
    "bench.rerun",
    "bench.resume",
    "group.stop",
    "queue.up",
    "queue.down",
    "queue.stop",
}
# Actions that open a field for text: `:` types into it what follows their name.
TAKE_TEXT = {
    "app.copy",
    "app.palette",
    "app.command",
    "runs.filter",
    "runs.filters",
    "runs.save",
    "runs.group",
    "runs.columns",
    "runs.edit",
    "run.edit",
    "plot.metric",
    "log.search",
    "log.save",
    "launch.script",
    "launch.save",
    "launch.filter",
    "bench.edit",
}

MODIFIERS = ("ctrl", "shift", "alt", "meta", "super", "hyper")

_ID = re.compile(r"\{([a-z]+\.[a-z]+)\}")


class KeyNames(Protocol):
    """Looks up the keys of an action; implemented by the app."""

    def key(self, id: str) -> str:
        """Return the keys of an action, separated by spaces."""


def insert_keys(text: str, app: object) -> str:
    """Replace ids in braces by the first key of each: "{run.stop} stops the run"."""
    if "{" not in text:
        return text
    names: KeyNames = app  # type: ignore[assignment]

    def first_key(match: re.Match[str]) -> str:
        keys = names.key(match[1]).split()
        return keys[0] if keys else "–"

    return _ID.sub(first_key, text)


def make_bindings(*groups: str) -> list[Binding]:
    """Return Textual's bindings of some groups of the table."""
    return [
        Binding(key.keys, key.action, key.label, show=key.shown, tooltip=key.help, id=key.id)
        for key in KEYMAP
        if key.group in groups
    ]


def make_hidden_binding(
    keys: str, action: str, id: str | None = None, priority: bool = False
) -> Binding:
    """Return a binding that is not shown in the footer or the help. With `id` it follows the keys
    that the user gave to that action. With `priority` it comes before those of the focused pane.
    """
    return Binding(keys, action, show=False, id=id, priority=priority)


def group_by_title(groups: Iterable[str]) -> dict[str, list[Key]]:
    """Return the keys of some groups by the title of each group."""
    return {TITLES[group]: [key for key in KEYMAP if key.group == group] for group in groups}


def parse_keys(id: str, remapped: Mapping[str, str]) -> list[Binding]:
    """Return one binding for each key of an action; `remapped` are the user's keys by id."""
    names = [name.strip() for name in remapped.get(id, BY_ID[id].keys).split(",")]
    return list(Binding.make_bindings([Binding(name, "none") for name in names if name]))


def remapped_characters(remapped: Mapping[str, str]) -> set[str]:
    """Return the keys that the user has given to actions and that type a character."""
    bindings = [binding for id in remapped for binding in parse_keys(id, remapped)]
    return {key_to_character(binding.key) or "" for binding in bindings}


def find_unknown(remapped: Mapping[str, str]) -> list[str]:
    """Return which of the user's keys by id name an action or a key that does not exist."""
    problems = []
    for id in remapped:
        if id not in BY_ID:
            problems.append(f"[keys]: {id} is not an action{nearest(id, BY_ID)}")
        elif not parse_keys(id, remapped):
            problems.append(f"[keys]: {id} has no key")
        else:
            for binding in parse_keys(id, remapped):
                if not is_key(binding.key):
                    hint = nearest(binding.key, {key.value for key in Keys})
                    problems.append(f"[keys]: {id}: there is no key {binding.key!r}{hint}")
    return problems


def find_clashes(remapped: Mapping[str, str]) -> list[str]:
    """Return which keys have two actions that work at the same time."""
    problems = [problem for groups in TOGETHER for problem in _find_clashes(groups, remapped)]
    return list(dict.fromkeys(problems))


def is_key(name: str) -> bool:
    """Return whether Textual knows a key of this name, such as "ctrl+shift+k" or "slash"."""
    *modifiers, key = name.split("+")
    if not all(modifier in MODIFIERS for modifier in modifiers):
        return False
    is_special = key in {known.value for known in Keys}
    return is_special or key_to_character(REPLACED_KEYS.get(key, key)) is not None


def _find_clashes(groups: Iterable[str], remapped: Mapping[str, str]) -> Iterator[str]:
    owners: dict[str, str] = {}
    for key in KEYMAP:
        if key.group in groups:
            for binding in parse_keys(key.id, remapped):
                owner = owners.setdefault(binding.key, key.id)
                if owner != key.id:
                    yield f"[keys]: {binding.key} has two actions, {owner} and {key.id}"
