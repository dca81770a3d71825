"""The verdict on a preset, and how it is worded."""

from __future__ import annotations

import msgspec

from runners import words


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison after a step (0: before the first): of all tensors the one that is worst
    beside its limit. `error` and `limit` are relative; None where bits or counts are compared.
    """

    what: str
    step: int
    passed: bool
    tensor: str = ""
    error: float | None = None
    limit: float | None = None
    words: str = ""

    @property
    def sentence(self) -> str:
        """What is wrong, and where first."""
        when = "before the first step" if self.step == 0 else f"at step {self.step}"
        if self.words:
            return f"{self.what} differ {when}: {self.words}"
        return (
            f"{self.what} differ {when}: {self.tensor} by {self.error:.2g} of its size, "
            f"{self.limit:.2g} is allowed"
        )


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Checks in the order of the training; `declared` is what cannot be equal by nature, and how
    it was checked instead, `tolerance` where the limits come from.
    """

    checks: list[Check] = []
    declared: list[str] = []
    tolerance: str = ""


class Report(Verdict, frozen=True, kw_only=True):
    """The verdict on one preset on one number of ranks; `problem` is why there is none."""

    preset: str
    strategy: str
    launcher: str
    precision: str
    world_size: int
    devices: list[str] = []
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and all(each.passed for each in self.checks)

    @property
    def first(self) -> Check | None:
        """The first check that failed."""
        return next((each for each in self.checks if not each.passed), None)

    @property
    def worst(self) -> Check | None:
        """The check that is nearest to its limit."""
        measured = [each for each in self.checks if each.limit]
        return max(measured, key=lambda each: (each.error or 0) / (each.limit or 1), default=None)

    @property
    def outcome(self) -> str:
        """ "the same", "differs" or "could not run"."""
        return "could not run" if self.problem else "the same" if self.passed else "differs"

    @property
    def sentence(self) -> str:
        """Why there is no verdict, or the first difference; nothing where all is the same."""
        return self.problem or (self.first.sentence if self.first else "")

    @property
    def combination(self) -> str:
        return f"{self.strategy} {self.launcher} {self.precision}"

    def figures(self) -> tuple[str, str, str]:
        """Of the first difference, or of what is nearest to its limit: where it is, its error,
        and what is allowed.
        """
        told = self.first if self.first and self.first.error is not None else self.worst
        if told is None:
            return (words.MISSING,) * 3
        where = f"{told.what} of {told.tensor}, step {told.step}"
        return where, f"{told.error:.1e}", f"{told.limit:.1e}"


def origin_of_limits(tolerance: str) -> str:
    """What the limits of reports with this `tolerance` are."""
    return f"allowed is {tolerance}"
