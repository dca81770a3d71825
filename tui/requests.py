"""What screens may ask of the app's controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:  # what launches runs is loaded after the first paint
    from distrain.runners.config.schema import RunConfig
    from distrain.runners.groups import Group
    from distrain.runners.runs import Run
    from distrain.runners.session import Session

# Called with whether the screen of what was started opens now.
OnDone: TypeAlias = Callable[[bool], None]


def ignore(opens: bool) -> None:
    """Do nothing: the default `OnDone`."""


class LaunchRequest(NamedTuple):
    """A run, bench or group to launch.

    `action` says what is done, for messages ("rerun mine"); `configs` are what it will train.
    `start` starts it: it takes `queue` (wait for the devices) and raises DistrainError. Relative
    paths in the configs start from `cwd`; None is the current folder. With `asks` nobody has seen
    yet what it will do, so that it is launched only after a question.
    """

    action: str
    configs: Sequence[RunConfig]
    start: Callable[..., Session | Group]
    runs_dir: Path
    cwd: str | None = None
    asks: bool = False


class LaunchActions(Protocol):
    @property
    def is_launching(self) -> bool:
        """Return whether a request is in progress; until it is done no other is accepted."""

    def launch(self, request: LaunchRequest, on_done: OnDone = ignore, queue: bool = False) -> None:
        """Start a run or bench and open its screen, unless the person types meanwhile. Ask first
        where the request asks or its devices are busy, unless `queue` says to wait for them.
        """


class SessionActions(Protocol):
    def open(self, session: Session | Group) -> None:
        """Open the screen of a run, bench or group."""

    def stop(self, session: Session | Group) -> None:
        """Ask how to stop a run, bench or group, and stop it."""

    def rerun(self, session: Session) -> None:
        """Launch the same config or definition again."""

    def resume(self, session: Session) -> None:
        """Continue a run from its last checkpoint, or a bench with its next round."""

    def edit(self, session: Session, on_done: Callable[[], None] = ...) -> None:
        """Edit the name, notes and tags of a run or bench."""

    def toggle_pin(self, session: Session) -> None:
        """Pin a run or bench to the top of the table, or unpin it."""

    def delete(self, sessions: Sequence[Session], on_done: Callable[[], None] = ...) -> None:
        """Ask for confirmation, and move runs and benches to the trash."""

    def restore(self, on_done: Callable[[], None] = ...) -> None:
        """Restore what was deleted last from the trash."""

    def report_end(self, session: Session, ended: float | None) -> None:
        """Notify that a run or bench has just ended, once for each end: a bench may resume."""


class BenchActions(Protocol):
    def plan(self, configs: Mapping[str, RunConfig], on_done: OnDone) -> None:
        """Ask for the rules of a bench of these configs (by name), and start it."""


class ExportActions(Protocol):
    def export(self, run: Run) -> None:
        """Ask for a format and a path, and write the measurements of a run there."""
