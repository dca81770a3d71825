"""`verify`: check that presets compute what one plain process computes."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.error_text import format_error
from distrain.runners.cli.terminal import (
    TextColumn,
    format_table,
    is_terminal,
    paint,
    print_json,
    print_message,
)
from distrain.runners.config import presets
from distrain.runners.errors import ConfigError
from distrain.runners.training.tap_files import STEPS
from distrain.runners.verification.cases import select_usable, verify
from distrain.runners.verification.result import VerificationResult, origin_of_limits

COLUMNS = (
    TextColumn("preset"),
    TextColumn("setup", drop_order=3),
    TextColumn("ranks", right=True),
    TextColumn("nearest to its limit", drop_order=2),
    TextColumn("error", right=True),
    TextColumn("limit", right=True),
    TextColumn("result"),
)


def execute(arguments: Namespace) -> int:
    """Verify the presets, by default all that can run here; return 1 if one differs."""
    ranks = _parse_ranks(arguments.ranks)
    steps = _require_steps(arguments.steps)
    changes = config_changes(arguments)
    names = arguments.presets or select_usable(
        presets.names(), _print_skipped, changes=changes, ranks=ranks
    )
    if not names:
        raise ConfigError("no preset can be verified here")
    results = []
    on_obstacle = _ObstaclePrinter().show
    for result in verify(names, changes=changes, ranks=ranks, steps=steps, on_obstacle=on_obstacle):
        results.append(result)
        print_message(_describe_result(result), "" if result.passed else "failed")
    if arguments.json:
        print_json([_result_data(result) for result in results])
    else:
        print(format_table(COLUMNS, map(_result_cells, results)))
        _print_notes(results)
    return 0 if all(result.passed for result in results) else 1


class _ObstaclePrinter:
    """Prints once why a run makes no progress, and again if it has made some meanwhile."""

    def __init__(self) -> None:
        self._has_obstacle = False

    def show(self, obstacle: str) -> None:
        if obstacle and not self._has_obstacle:
            print_message(obstacle)
        self._has_obstacle = bool(obstacle)


def _print_skipped(name: str, error: ConfigError) -> None:
    reason = format_error(error).removeprefix("distrain: ")
    print_message(f"{name} is skipped: {reason}", "dim")


def _parse_ranks(text: str | None) -> list[int]:
    """Return the numbers in "1,2,3". Raises ConfigError."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ConfigError(f"--ranks takes numbers from 1, e.g. --ranks 1,2,3, not {text!r}")
    return [int(part) for part in parts]


def _require_steps(steps: int | None) -> int:
    if steps is None:
        return STEPS
    if steps < 1:
        raise ConfigError(f"--steps takes a number from 1, not {steps}")
    return steps


def _describe_result(result: VerificationResult) -> str:
    ranks = formatting.plural(result.world_size, "rank")
    return f"{result.preset} on {ranks}: {result.sentence or 'the same as one process'}"


def _result_cells(result: VerificationResult) -> list[str]:
    outcome = result.outcome
    if is_terminal(sys.stdout):
        outcome = paint(outcome, "completed" if result.passed else "failed")
    head = [result.preset, result.combination, str(result.world_size)]
    return [*head, *result.figures(), outcome]


def _print_notes(results: Sequence[VerificationResult]) -> None:
    tolerances = {result.tolerance for result in results if result.tolerance}
    for tolerance in sorted(tolerances):
        print_message(origin_of_limits(tolerance), "dim")
    for result in results:
        for note in result.declared:
            print_message(f"{result.preset}: {note}", "dim")


def _result_data(result: VerificationResult) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(result)
    data["passed"] = result.passed
    data["first"] = result.first and result.first.sentence
    return data
