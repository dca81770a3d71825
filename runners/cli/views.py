"""What a run and a bench each provide to be shown by the same commands."""

from __future__ import annotations

from typing import ClassVar, Protocol, TextIO


class View(Protocol):
    """Live output of a session."""

    interval_s: float  # between two updates, unless they take long

    def update(self) -> bool:
        """Show what has changed, and return whether the session was live at that moment."""

    def message(self, text: str) -> None:
        """Show a message of the command line itself."""

    def close(self) -> None:
        """End the output; what it showed last stays."""


class Presentation(Protocol):
    """What commands show of a session."""

    stop_requests: ClassVar[int]  # how many Ctrl-C change anything before one leaves

    def view(self, stream: TextIO, every: float, output: TextIO) -> View:
        """Return live output: repainted on a terminal, else lines with progress `every` seconds.

        What a script prints goes to `output`, all else to `stream`.
        """

    def print_result(self, as_json: bool) -> int:
        """Print how it ended, and return the exit code."""

    def page(self) -> str:
        """Return everything about it, for a person."""

    def data(self) -> object:
        """Return everything about it, for `--json`."""

    def describe_stop(self, now: bool) -> str:
        """Return what a stop does to it, as the rest of "stopping ID: "."""

    def notices(self) -> list[str]:
        """Return what a person should know before it trains."""
