"""The logs of the run screen: threads that read them for the pane and save them as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from textual.screen import Screen

from distrain.runners import formatting
from distrain.runners.records.logs import log_path
from distrain.runners.records.state import RunError
from distrain.tui.data.log_reader import PROCESS_LOGS, LogFollower, save_log
from distrain.tui.dialogs.prompt import PromptDialog
from distrain.tui.widgets.log_pane import LogPane


class RunLogs:
    """Serves the requests of a log pane on a screen, for the run in a folder."""

    def __init__(
        self, screen: Screen[Any], pane: LogPane, folder: Path, is_watched: Callable[[], bool]
    ) -> None:
        self._screen = screen
        self._folder = folder
        self._follower = LogFollower(
            folder,
            deliver=lambda page: pane.post_message(LogPane.PageRead(page)),
            is_watched=lambda: is_watched() and pane.is_displayed,
        )

    def start(self) -> None:
        """Read in a thread until `stop`."""
        self._screen.run_worker(self._follower.run, thread=True, group="logs")

    def stop(self) -> None:
        self._follower.stop()

    def suggest(self, names: Iterable[str], error: RunError | None) -> str | None:
        """Return the log to open: the one that explains the error, else the newest of a rank, else
        the newest. None if all are empty.
        """
        changed = {name: time for name in names if (time := self._time_of_content(name))}
        if error and error.log_name in changed:
            return error.log_name
        of_ranks = [name for name in changed if name not in PROCESS_LOGS]
        return max(of_ranks or changed, key=lambda name: changed[name], default=None)

    def _time_of_content(self, name: str) -> float:
        """Return when a log was written to; 0 for one that is empty."""
        try:
            stat = log_path(self._folder, name).lstat()
        except OSError:
            return 0.0
        return stat.st_mtime if stat.st_size else 0.0

    def read(self, event: LogPane.PageRequested) -> None:
        self._follower.request(event.request, event.names, event.live)

    def save(self, name: str) -> None:
        """Ask for a file name and save a log under it."""

        def save(path: str | None) -> None:
            if path:
                target = Path(os.path.expanduser(path))
                self._screen.run_worker(
                    lambda: self._save(name, target), thread=True, group="save log"
                )

        self._screen.app.push_screen(
            PromptDialog(
                f"Save the log of {name.replace('-', ' ')}",
                "The whole log is saved as it was printed. File name:",
                f"{self._folder.name}-{name}.log",
                lambda path: "" if path.strip() else "enter a file name",
            ),
            save,
        )

    def _save(self, name: str, target: Path) -> None:
        try:
            size = save_log(self._folder, name, target)
        except FileExistsError:
            self._notify(f"{target} already exists; choose another name", "warning")
        except OSError as error:
            self._notify(f"cannot save {target}: {error.strerror}", "error")
        else:
            self._notify(f"saved {formatting.size(size)} to {target.absolute()}", "information")

    def _notify(self, text: str, severity: Any) -> None:
        app = self._screen.app
        app.call_from_thread(app.notify, text, severity=severity)
