"""What to do about devices that others have: asked before a launch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import work

from runners import claims
from runners.errors import DistrainError
from runners.plan import Plan
from tui.screens.dialogs import Choice

LOOK_S = 1.0
FREE = "Nothing is in the way any more."


class Busy(Choice):
    """Gives "queue" or "now"; goes on looking at who has the devices of the plans."""

    def __init__(
        self, what: str, plans: Sequence[Plan], runs_dir: Path, obstacles: list[str]
    ) -> None:
        answers = [("queue", "Queue", "primary"), ("now", "Start anyway", "warning")]
        super().__init__(f"The devices of {what} are busy", "\n".join(obstacles), answers)
        self._plans, self._runs_dir = plans, runs_dir

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self._look)

    @work(thread=True, exclusive=True)
    def _look(self) -> None:
        try:
            text = "\n".join(claims.who_has_any(self._plans, self._runs_dir)) or FREE
        except DistrainError as error:
            text = str(error)
        self.app.call_from_thread(self.text.update, text)
