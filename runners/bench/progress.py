"""The plan and the progress of a bench as text, the same in the command line and in the app."""

from __future__ import annotations

import shlex

from distrain.runners import formatting
from distrain.runners.analysis.interval import MIN_MEASUREMENTS
from distrain.runners.bench.candidate_texts import command_words
from distrain.runners.bench.definition import Definition, Rules
from distrain.runners.bench.estimate import RemainingTime, estimate_remaining
from distrain.runners.bench.state import BenchState
from distrain.runners.config.schema import RunConfig


def describe_current_run(definition: Definition, state: BenchState) -> str:
    """Return "round 3 of 7–20, run 1 of 2: ddp", or "" if no run is being measured."""
    current = state.current
    if current is None:
        return ""
    rounds = format_rounds(definition.rules, "–")
    run = f"run {current.number} of {len(current.order)}"
    return f"round {current.round} of {rounds}, {run}: {current.candidate}"


def describe_remaining(remaining: RemainingTime | None) -> str:
    """Return "~2 min 10 s left, at most 5 min"; "" if it is not known."""
    if remaining is None:
        return ""
    likely = formatting.duration(remaining.likely)
    most = formatting.duration(remaining.most)
    text = f"~{likely} left"
    if most != likely:
        text += f", at most {most}"
    return text


def describe_plan(definition: Definition) -> str:
    """Return how many rounds a bench that has not started will take, and how long."""
    rules = definition.rules
    runs = formatting.plural(len(definition.configs), "run")
    text = f"{format_rounds(rules, ' to ')} rounds of {runs}"
    if rules.repeats < MIN_MEASUREMENTS:
        text += f", which cannot give a result (that takes {MIN_MEASUREMENTS} or more)"
    if rules.min_rounds < rules.repeats:
        figure = "each ratio" if len(definition.configs) > 1 else "its rate"
        text += f", until {figure} is known within ±{100 * rules.precision:g} %"
    remaining = estimate_remaining(definition, BenchState(bench_id="", created=0.0))
    if remaining is None:
        return text
    least = formatting.duration(remaining.least)
    most = formatting.duration(remaining.most)
    duration = least if least == most else f"{least} to {most}"
    return f"{text}: ~{duration}"


def shell_command(definition: Definition) -> list[str]:
    """Return the `distrain bench` command of a definition with names as `candidates` gives them."""
    rules = definition.rules
    defaults = Rules()
    command = ["distrain", "bench", *map(_candidate_text, definition.configs.items())]
    for name in ("repeats", "seconds", "steps", "precision", "seed"):
        value = getattr(rules, name)
        if value != getattr(defaults, name) and not (name == "seconds" and rules.steps):
            command += [f"--{name}", str(value)]
    if rules.baseline not in ("", next(iter(definition.configs))):
        command += ["--baseline", rules.baseline]
    if definition.target:
        command += ["--target", f"{definition.target.metric}={definition.target.value}"]
    if rules.unequal:
        command.append("--unequal")
    return command


def _candidate_text(candidate: tuple[str, RunConfig]) -> str:
    """Return what `candidates` reads as this candidate; only a preset's file sets `code_dir`."""
    name, config = candidate
    is_command_line = config.is_script and config.code_dir is None
    return shlex.join(command_words(config)) if is_command_line else name


def format_rounds(rules: Rules, separator: str) -> str:
    """Return the minimum and maximum number of rounds, as in "7–20", or the one number."""
    if rules.min_rounds == rules.repeats:
        return str(rules.repeats)
    return f"{rules.min_rounds}{separator}{rules.repeats}"
