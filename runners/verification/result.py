"""The verification result of a preset, and its wording."""

from __future__ import annotations

import msgspec

from distrain.runners import formatting

RESULT_FILE = "report.json"  # in the folder of the verification files
TASK = "task"  # what is checked if `detail` is a whole sentence about the task


class VerificationCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison after a step (0: before the first step).

    `tensor` is the first tensor over its limit or, if none is, the one closest to its limit.
    `error` and `limit` are relative to the norm of the tensor; for weights they are those of one
    element. None where bits or counts are compared. `detail` replaces them in the sentence.
    """

    what: str
    step: int
    passed: bool
    tensor: str = ""
    error: float | None = None
    limit: float | None = None
    detail: str = msgspec.field(default="", name="words")

    @property
    def sentence(self) -> str:
        """What differs, from which step on and by how much."""
        if self.what == TASK:
            return self.detail
        when = "before the first step" if self.step == 0 else f"at step {self.step}"
        if self.detail:
            return f"{self.what} differ {when}: {self.detail}"
        return (
            f"{self.what} differ {when}: {self.tensor} has a relative error of {self.error:.2g} "
            f"(limit {self.limit:.2g})"
        )


class ReferenceComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run compared with the plain process: checks in the order of training.

    `declared` lists what cannot be equal, and how it was checked instead; `tolerance` says where
    the limits come from.
    """

    checks: list[VerificationCheck] = []
    declared: list[str] = []
    tolerance: str = ""


class VerificationResult(ReferenceComparison, frozen=True, kw_only=True):
    """The comparison of one preset at one world size; `problem` says why there is none."""

    preset: str
    strategy: str
    launcher: str
    precision: str
    world_size: int
    devices: list[str] = []
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and all(check.passed for check in self.checks)

    @property
    def first(self) -> VerificationCheck | None:
        """The first check that failed."""
        return next((check for check in self.checks if not check.passed), None)

    @property
    def worst(self) -> VerificationCheck | None:
        """The check closest to its limit."""
        measured = [check for check in self.checks if check.limit]
        return max(measured, key=_share_of_limit, default=None)

    @property
    def outcome(self) -> str:
        """Return "the same", "differs" or "could not run"."""
        if self.problem:
            return "could not run"
        return "the same" if self.passed else "differs"

    @property
    def sentence(self) -> str:
        """Why the preset could not run, or the first difference; empty if there is none."""
        if self.problem:
            return self.problem
        return self.first.sentence if self.first else ""

    @property
    def combination(self) -> str:
        return f"{self.strategy} {self.launcher} {self.precision}"

    def figures(self) -> tuple[str, str, str]:
        """Return position, error and limit of the first difference or, if there is none, of the
        tensor closest to its limit.
        """
        check = self.first
        if check is None or check.error is None:
            check = self.worst
        if check is None:
            return formatting.MISSING, formatting.MISSING, formatting.MISSING
        where = f"{check.what} of {check.tensor}, step {check.step}"
        return where, f"{check.error:.1e}", f"{check.limit:.1e}"


def origin_of_limits(tolerance: str) -> str:
    """Return the note that explains the limits of results with this `tolerance`."""
    return f"limit: {tolerance}"


def _share_of_limit(check: VerificationCheck) -> float:
    return (check.error or 0) / (check.limit or 1)
