"""Verify presets, and report which are waiting, verified now, or done."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from distrain.runners import formatting
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.verification.cases import Case, Verification, make_cases
from distrain.runners.verification.result import VerificationResult

_ONE_AT_A_TIME = threading.Lock()  # two verifications would wait for each other's devices

State = Literal["waiting", "verifying", "done"]


class PresetToVerify(NamedTuple):
    """A preset and its config as it would be launched."""

    preset: str
    config: RunConfig


class VerificationEntry(NamedTuple):
    """A preset on one number of ranks; `result` has an outcome once `state` is "done"."""

    result: VerificationResult
    state: State = "waiting"

    @property
    def outcome(self) -> str:
        return self.result.outcome if self.state == "done" else self.state


class Progress:
    """How far a verification is, and how long it may still take; times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._began = now  # the case in progress
        self._durations: list[float] = []
        self._done = self._total = 0

    def update(self, entries: Sequence[VerificationEntry], now: float) -> None:
        done = sum(entry.state == "done" for entry in entries)
        if self._total and done > self._done:
            self._durations.append(now - self._began)
        if done != self._done or not self._total:
            self._began = now
        self._done, self._total = done, len(entries)

    def describe(self, now: float) -> str:
        """Return "verifying 2 of 5 for 12 s · ~30 s left"; without an estimate before the first."""
        if not self._total:
            return "checking which presets can run here …"
        elapsed = now - self._began
        text = f"verifying {self._done + 1} of {self._total} for {formatting.duration(elapsed)}"
        if not self._durations:
            return text
        each = fmean(self._durations)
        left = max(each - elapsed, 0.0) + each * (self._total - self._done - 1)
        return f"{text} · ~{formatting.duration(left)} left"


class VerificationFeed:
    """Verifies presets. `updates` runs in one thread; `stop` may be called from any.

    `obstacle` is why the run in progress makes none, or an empty string.
    """

    def __init__(self, presets: Sequence[PresetToVerify], ranks: Sequence[int] = ()) -> None:
        self._presets = presets
        self._ranks = ranks
        self._verification = Verification(self._note_obstacle)
        self.obstacle = ""

    def _note_obstacle(self, text: str) -> None:
        self.obstacle = text

    def stop(self) -> None:
        """Stop the verification in progress; `updates` ends."""
        self._verification.stop()

    def updates(self) -> Iterator[Sequence[VerificationEntry]]:
        """Yield all entries each time that one of them changes."""
        cases = [case for preset in self._presets for case in self._cases(preset)]
        entries = [
            VerificationEntry(case.blank, "done" if case.blank.problem else "waiting")
            for case in cases
        ]
        yield tuple(entries)
        waiting = [index for index, entry in enumerate(entries) if entry.state == "waiting"]
        with _ONE_AT_A_TIME:
            results = self._verification.results(cases[index] for index in waiting)
            for index in waiting:
                entries[index] = entries[index]._replace(state="verifying")
                yield tuple(entries)
                if (result := next(results, None)) is None:  # stopped
                    return
                entries[index] = VerificationEntry(result, "done")
            yield tuple(entries)

    def _cases(self, wanted: PresetToVerify) -> list[Case]:
        """Return the cases of a preset; a single one with a problem if it cannot run here."""
        preset, config = wanted
        try:
            return make_cases(preset, config, self._ranks)
        except ConfigError as error:
            blank = VerificationResult(
                preset=preset,
                strategy=config.strategy,
                launcher=config.launcher,
                precision=config.precision,
                world_size=0,
                problem="; ".join(str(error).splitlines()),
            )
            return [Case(config, blank)]
