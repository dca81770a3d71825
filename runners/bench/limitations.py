"""What limits the results of a bench: failures, few rounds, other programs, early ends."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.figures import core_count, is_cpu_shared
from distrain.runners.analysis.interval import MIN_MEASUREMENTS
from distrain.runners.bench.definition import Definition, Rules
from distrain.runners.bench.measured_part import MIN_WINDOWS
from distrain.runners.bench.state import BenchState, Measurement

WRONG_BATCH = 0.1  # share of the declared batch; smaller differences come from incomplete batches


def find_limitations(definition: Definition, state: BenchState) -> list[str]:
    """Return a sentence for each of them."""
    warnings = [f"{name} was excluded: {reason}" for name, reason in state.excluded.items()]
    if 0 < state.rounds < MIN_MEASUREMENTS:
        rounds = formatting.plural(state.rounds, "round")
        warnings.append(f"{rounds} completed: too few for meaningful intervals or results")
    cores = core_count(state.provenance)
    shared = [
        each.other_cores
        for each in state.measurements
        if each.other_cores is not None and is_cpu_shared(each.other_cores, cores)
    ]
    if shared:
        runs = formatting.plural(len(state.measurements), "run")
        warnings.append(
            f"{len(shared)} of {runs} shared the CPU with other programs, "
            f"which used up to {max(shared):.1f} of {cores} cores"
        )
    unsteady = dict.fromkeys(each.candidate for each in state.measurements if not each.steady)
    warnings += [f"{name} did not reach a steady pace in some rounds" for name in unsteady]
    return warnings + _find_script_warnings(definition, state)


def _find_script_warnings(definition: Definition, state: BenchState) -> list[str]:
    """Return what limits the measurements of scripts: early ends, missing or wrong samples."""
    warnings = []
    silent = {each.candidate for each in state.measurements if each.unit == "steps/s"}
    if silent:
        names = sentences.join_names([name for name in definition.configs if name in silent])
        warnings.append(f"rates are steps/s: the samples of {names} are not known")
    for name in definition.configs:
        measurements = [each for each in state.measurements if each.candidate == name]
        least_s = MIN_WINDOWS * definition.configs[name].report.window_s
        warnings += _describe_early_ends(name, definition.rules, least_s, measurements)
        warnings += _describe_batch(name, measurements)
    return warnings


def _describe_early_ends(
    name: str, rules: Rules, least_s: float, measurements: Sequence[Measurement]
) -> list[str]:
    early = [each for each in measurements if each.ended_early]
    if not early:
        return []
    least = min(early, key=attrgetter("seconds"))
    if rules.steps is not None and least.steps < rules.steps:
        measured = f"{least.steps:,} of {rules.steps:,} steps"
    else:  # steps that took too little time are measured for longer
        wanted = formatting.duration(rules.seconds if rules.steps is None else least_s)
        measured = f"{formatting.duration(least.seconds)} of {wanted}"
    rounds = f"{len(early)} of {formatting.plural(len(measurements), 'round')}"
    return [f"{name} ended by itself in {rounds}, after {measured} were measured"]


def _describe_batch(name: str, measurements: Sequence[Measurement]) -> list[str]:
    """Return whether the steps of a script have other samples than the batch that it declares."""
    last = measurements[-1] if measurements else None
    declared = last.declared.get("global_batch") if last else None
    samples = last.samples_per_step if last else None
    if not isinstance(declared, int | float) or samples is None:
        return []
    if abs(samples - declared) <= WRONG_BATCH * declared:
        return []
    return [
        f"{name} declares a global batch of {declared:g}, but its steps had "
        f"{formatting.figure(samples)} samples (mean, of all ranks together)"
    ]
