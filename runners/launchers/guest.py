"""A node on a host that a person has joined to a run: `distrain join` shows what it tells."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from queue import Empty

from runners import words
from runners.config import RunConfig
from runners.devices import of_rank
from runners.errors import DistrainError
from runners.events import Ended, Event, Notice, Welcome
from runners.launchers.node import Node
from runners.launchers.parent import Parent
from runners.launchers.place import Place
from runners.plan import Plan
from runners.provenance import versions

CODES = {"completed": 0, "failed": 1, "stopped": 130}
VERDICT_S = 60.0  # for the first host to say how the run has ended, once the ranks here have
GONE = "the first host has gone or answers no more; what ran here was ended"
ALIKE = ("distrain", "python", "torch", "horovod")  # versions that should be


def tell(what: str, how: str) -> None:
    """A line for `distrain join`: a state, and more about it."""
    print(what, words.line(how), sep="\t", flush=True)


class Guest(Node):
    """Tells a person how it stands, and ends as the run does."""

    def __init__(self, place: Place, devices: str = "", meeting: str = "") -> None:
        super().__init__(place, devices=devices, meeting=meeting)
        self._ended = False
        self._if_gone = "it hung up: the token is not that of its run"

    def work(self) -> int:
        try:
            super().work()
        except Exception:
            if not self._ended:
                raise
        return self.exit_code

    def _work(self, parent: Parent) -> int:
        if (welcome := self._answers.get()) is None:
            raise DistrainError(self._if_gone)
        if text := differing(versions(), welcome.versions):
            tell("warning", text)
            self._note(parent, text, "warning")
        try:
            code = self._train(parent, welcome)
        except DistrainError as error:
            self._takes_no_part(parent, error)
            raise
        except Exception as error:  # the elastic agent's, as where the store is gone with its host
            with suppress(Empty):
                self._answers.get(timeout=VERDICT_S)
            if self._ended:
                raise
            traceback.print_exc()
            raise DistrainError(f"the ranks here ended: {words.line(str(error))}") from None
        self._answers.get()  # until the run has ended everywhere
        return code

    def _takes_no_part(self, parent: Parent, error: DistrainError) -> None:
        self._note(parent, f"takes no part: {error}", "warning")

    def _heard(self, event: Event) -> None:
        match event:
            case Notice(level="info"):
                self._if_gone = GONE
                tell("waiting", event.text)
            case Notice():
                self._if_gone = event.text
            case Welcome():
                self._if_gone = GONE
            case Ended():
                self._end_with(event.status, event.reason)
        super()._heard(event)

    def _lost(self) -> None:
        if not self._ended:
            self._end_with("failed", self._if_gone)
        super()._lost()

    def _end_with(self, status: str, reason: str) -> None:
        """Told at once: what still runs here may take a while to end."""
        self._ended, self.exit_code = True, CODES[status]
        tell(status, reason)

    def _told(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        config, plan = super()._told(welcome)
        ranks = self._place.ranks(plan.ranks_per_node)
        labels = " ".join(of_rank(plan.devices, local).label for local in ranks)
        numbers = words.ranks(list(ranks.values()))
        tell("training", f"{numbers} of {plan.world_size} on {labels}")
        return config, plan


def differing(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Which versions the first host has not; empty where all are alike."""
    found = [
        f"{name} is {ours.get(name, 'missing')} here and {theirs.get(name, 'missing')} there"
        for name in ALIKE
        if ours.get(name) != theirs.get(name)
    ]
    return f"unlike on the first host, {', '.join(found)}" if found else ""


def main() -> int:
    """Join as node NUMBER (-1: whichever is free) with DEVICES (empty: those of the config)."""
    number, devices = int(sys.argv[1]), sys.argv[2]
    return take_part(Guest(Place(number), devices))


def take_part(guest: Guest) -> int:
    """Connect and work; gives the exit code, and says why where that is not the run's."""
    place = os.environ["DISTRAIN_SOCKET"].removeprefix("tcp:")
    tell("connecting", place)
    try:
        return guest.work()
    except ConnectionRefusedError:
        tell("failed", f"nobody listens at {place}: the run there has ended, or not begun")
    except OSError as error:
        tell("failed", f"{place} cannot be reached: {error.strerror or error}")
    except DistrainError as error:
        tell("failed", str(error))
        return error.exit_code
    return 1


if __name__ == "__main__":
    sys.exit(main())
