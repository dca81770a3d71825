"""Launching the run of a draft, or the sweep of one that has several values of a key."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

from distrain.runners import runs
from distrain.runners.checks import check
from distrain.runners.config.sweep import combine
from distrain.runners.groups import Group, launch_group
from distrain.runners.session import runs_folder
from distrain.tui import keymap
from distrain.tui.base_app import BaseApp
from distrain.tui.data.draft import Draft
from distrain.tui.requests import LaunchRequest, OnDone


class DraftLaunch:
    """Launches drafts. `on_change` is called when `progress` has changed, and `on_done` at the end.

    `progress` says what is being launched; it is empty at other times.
    """

    def __init__(self, app: BaseApp, on_change: Callable[[], None], on_done: OnDone) -> None:
        self._app = app
        self._on_change = on_change
        self._on_done = on_done
        self.progress = ""

    def command(self, draft: Draft) -> str:
        """Return the command line that launches a draft without the app."""
        folder = self._app.runs_dir
        return shlex.join(draft.command(None if folder == runs_folder() else folder))

    def start(self, draft: Draft, where: str, queue: bool) -> None:
        """Launch a draft. `where` is for the message: " on GPU 0", or an empty string."""
        self._app.remember(preset=draft.name)
        if draft.axes:
            self._start_sweep(draft)
            return
        start = partial(
            runs.launch,
            draft.config,
            name=draft.stem,
            runs_dir=self._app.runs_dir,
            command=shlex.split(self.command(draft)),
        )
        action = f"launch {draft.label}"
        request = LaunchRequest(action, [draft.config], start, self._app.runs_dir)
        self._request(f"launching {draft.label}{where}", request, queue)

    def _start_sweep(self, draft: Draft) -> None:
        """Queue the runs of a draft with several values as one group."""
        runs_dir, command = self._app.runs_dir, shlex.split(self.command(draft))

        def start(queue: bool) -> Group:
            configs = combine(draft.config, draft.axes, check)
            name = f"{draft.stem}-sweep"
            return launch_group(configs, name, runs_dir=runs_dir, command=command)

        action = f"launch the sweep of {draft.label}"
        request = LaunchRequest(action, [draft.config], start, runs_dir)
        self._request(f"queueing the sweep of {draft.label}", request, queue=True)

    def _request(self, progress: str, request: LaunchRequest, queue: bool) -> None:
        self.progress = progress
        self._on_change()
        self._app.launches.launch(request, self._finish, queue)

    def _finish(self, opens: bool) -> None:
        self.progress = ""
        self._on_done(opens)

    def refuse_sweep(self, draft: Draft | None) -> bool:
        """Refuse what takes one value of each key; return whether the draft has several."""
        if draft is None or not draft.axes:
            return False
        keys = ", ".join(axis.key for axis in draft.axes)
        hint = "{launch.start} launches it as a sweep, {launch.reset} resets a field"
        hint = keymap.insert_keys(hint, self._app)
        self._app.refuse(f"{draft.label} has several values of {keys}: {hint}")
        return True
