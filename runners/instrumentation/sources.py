"""Where the figures of a script come from, and why others are missing."""

from __future__ import annotations

from collections.abc import Mapping

from distrain.runners.instrumentation.step_counter import BATCHES, CALLS
from distrain.runners.protocol.events import PHASES

VALUES = "values"  # what is logged
FIGURES = ("steps", "samples", "lr", *PHASES, VALUES)
STEP_CALLS = "distrain.step()"
TRACKED = "distrain.track()"
NAMED = "distrain.phase()"
LOG_CALLS = "distrain.log()"
LOADER = "DataLoader"
DDP = "DDP's own timing of one step in a hundred"
AMBIGUOUS = "the samples of some batch are ambiguous, or most steps came without a batch"


class Sources:
    """Knows what was observed so far, and words it. `sent` is what was taken last."""

    def __init__(self) -> None:
        self.kind = 0  # of the steps
        self.optimizer = ""  # the type of the one that is counted
        self.others: list[str] = []  # types of optimizers that are not
        self.loader = ""
        self.named_phases: set[str] = set()
        self.values: list[str] = []  # functions that log values
        self.samples_are_given = False
        self.samples_are_known: bool | None = None  # None: no step was reported
        self.reasons: dict[str, str] = {}  # why figures are missing as long as they are
        self._phases: set[str] = set()
        self._has_rate = False
        self._sent: tuple[dict[str, str], dict[str, str]] = {}, {}

    def lose(self, reason: str) -> None:
        """Take all figures for missing, until they are noted again."""
        self.kind = 0
        self.samples_are_known = None
        self._phases.clear()
        self._has_rate = False
        self.reasons = dict.fromkeys(FIGURES, reason)

    def note_window(self, phases: Mapping[str, float], rate: float | None) -> None:
        """Note which figures a window has."""
        self._phases.update(phase for phase, seconds in phases.items() if seconds)
        self._has_rate |= rate is not None

    def known(self) -> dict[str, str]:
        """Return where each figure comes from that was reported."""
        found: dict[str, str] = {}
        if self.kind:
            found["steps"] = self._steps()
        if self.samples_are_known:
            batches = f"dimension 0 of the batches of {self.loader}, or what its sampler draws"
            found["samples"] = STEP_CALLS if self.samples_are_given else batches
        if self._has_rate:
            found["lr"] = f"parameter group 0 of {self.optimizer}"
        automatic = {
            "data": self.loader,
            "forward": "from a batch to backward()",
            "backward": "backward()",
            "comm": DDP,
            "optimizer": f"from backward() to the end of {self.optimizer}.step()",
        }
        for phase, source in automatic.items():
            if phase in self._phases:
                found[phase] = NAMED if phase in self.named_phases else source
        if self.values:
            found[VALUES] = ", ".join(self.values)
        return found

    def _steps(self) -> str:
        if self.kind == CALLS:
            return STEP_CALLS
        if self.kind == BATCHES:
            return f"batches of {TRACKED}"
        others = ", ".join(self.others)
        return f"optimizer steps of {self.optimizer}" + (f"; not counted: {others}" * bool(others))

    def missing(self) -> dict[str, str]:
        """Return why the other figures are missing, as far as there is a reason."""
        reasons = dict(self.reasons)
        if self.samples_are_known is False:
            reasons["samples"] = AMBIGUOUS
        known = self.known()
        return {figure: reason for figure, reason in reasons.items() if figure not in known}

    def take_change(self) -> bool:
        """Return whether anything has changed since the last call."""
        now = self.known(), self.missing()
        has_changed = now != self._sent
        self._sent = now
        return has_changed
