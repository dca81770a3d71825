"""Presets as they are verified: which waits, which is at it, what came of the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from runners.config import RunConfig
from runners.errors import ConfigError
from runners.verification.cases import Case, Verification, cases
from runners.verification.report import Report

_ONE_AT_A_TIME = threading.Lock()  # two would wait for each other's devices

State = Literal["waiting", "verifying", "done"]


class Wanted(NamedTuple):
    """What is to be verified: a preset and its config as it would be launched."""

    preset: str
    config: RunConfig


class Entry(NamedTuple):
    """A preset on one number of ranks; the report has a verdict once it is done."""

    report: Report
    state: State = "waiting"

    @property
    def outcome(self) -> str:
        return self.report.outcome if self.state == "done" else self.state


class Verifier:
    """Verifies presets; `looks` is for one thread, `stop` for any."""

    def __init__(self, wanted: Sequence[Wanted], ranks: Sequence[int] = ()) -> None:
        self._wanted, self._ranks = wanted, ranks
        self._verification = Verification()

    def stop(self) -> None:
        """End what is under way; there are no more looks."""
        self._verification.stop()

    def looks(self) -> Iterator[Sequence[Entry]]:
        """All entries as they are, each time that one has changed."""
        found = [case for wanted in self._wanted for case in self._cases(wanted)]
        entries = [Entry(case.about, "done" if case.about.problem else "waiting") for case in found]
        yield tuple(entries)
        todo = [at for at, entry in enumerate(entries) if entry.state == "waiting"]
        with _ONE_AT_A_TIME:
            reports = self._verification.reports(found[at] for at in todo)
            for at in todo:
                entries[at] = entries[at]._replace(state="verifying")
                yield tuple(entries)
                if (report := next(reports, None)) is None:
                    return
                entries[at] = Entry(report, "done")
            yield tuple(entries)

    def _cases(self, wanted: Wanted) -> list[Case]:
        """One with a problem where the config cannot run here."""
        preset, config = wanted
        try:
            return cases(preset, config, self._ranks)
        except ConfigError as error:
            about = Report(
                preset=preset,
                strategy=config.strategy,
                launcher=config.launcher,
                precision=config.precision,
                world_size=0,
                problem="; ".join(str(error).splitlines()),
            )
            return [Case(config, about)]
