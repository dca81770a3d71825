"""The question what to do when the devices of a launch are busy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from textual import work

from distrain.runners.config.plan import Plan
from distrain.runners.errors import DistrainError
from distrain.runners.supervision import device_queue
from distrain.tui import keymap
from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

POLL_S = 1.0
FREE = "All devices are free now."


class BusyDevicesDialog(ChoiceDialog):
    """Return "queue" or "now". While it is open, it updates who holds the devices of the plans.

    `action` is what needs them ("rerun mine"); `obstacles` say who holds them now.
    """

    BINDINGS = [keymap.make_hidden_binding("ctrl+e", "queue", "launch.queue")]  # noqa: RUF012

    def __init__(
        self, action: str, plans: Sequence[Plan], runs_dir: Path, obstacles: list[str]
    ) -> None:
        queue = keymap.insert_keys("Queue ({launch.queue})", self.app)
        start = Answer("now", "Start anyway", "warning", "a")
        answers = [Answer("queue", queue, "primary"), start]
        super().__init__(f"Devices needed to {action} are busy", "\n".join(obstacles), answers)
        self._plans = plans
        self._runs_dir = runs_dir
        self._has_closed = threading.Event()

    def on_mount(self) -> None:
        self._follow()

    def on_unmount(self) -> None:
        self._has_closed.set()

    def action_queue(self) -> None:
        self.dismiss("queue")

    @work(thread=True)
    def _follow(self) -> None:
        # One thread for all looks: a driver that does not answer would keep one for each.
        while not self._has_closed.wait(POLL_S):
            try:
                obstacles = device_queue.find_obstacles_of_any(self._plans, self._runs_dir)
                text = "\n".join(obstacles) or FREE
            except DistrainError as error:
                text = str(error)
            self.app.call_from_thread(self.text.update, text)
