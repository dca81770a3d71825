"""Compares existing runs, by one run of each candidate."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distrain.runners import formatting
from distrain.runners.analysis.best_run import best_metric
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.curves import choose_logged, read_curves
from distrain.runners.analysis.comparison.fairness import (
    Reported,
    compare_candidates,
    count_resources,
)
from distrain.runners.analysis.comparison.figures import (
    compute_figures,
    core_count,
    declared_by,
    is_cpu_shared,
    reports_samples,
    reports_steps,
    step_kind,
)
from distrain.runners.analysis.comparison.model import Candidate, Comparison, Difference, Unit
from distrain.runners.analysis.comparison.provenance_diff import compare_provenance
from distrain.runners.analysis.comparison.steady_state import SteadyPart, find_steady_part
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.interval import MIN_MEASUREMENTS, Interval
from distrain.runners.analysis.statistics import find_outliers, median_interval, ratio_of_medians
from distrain.runners.config.plan import Plan
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.records.reader import Record
from distrain.runners.records.run_ids import display_names
from distrain.runners.records.state import RunState

LEFT_OUT_WARNING = 0.05  # share of the timed seconds
ONE_RUN_EACH = (
    "one run of each cannot show how much two launches of the same config differ; a bench can"
)
NO_STEPS = "has no measured rate: no step of the script was recorded"
# Which samples are evaluated: of presets, and as scripts declare it.
DATA_KEYS = ("data.name", "data.root", "data.eval_limit", "data")
AS_REPORTED = "evaluations, logged values and samples of scripts are as the scripts report them"


def compare(records: Sequence[Record], baseline: str | None = None) -> Comparison:
    """Compare runs as they are now.

    `baseline`: name or id of a run; by default the first.

    Raises ConfigError if there are no runs or the baseline is not one of them, DistrainError if a
    record cannot be read.
    """
    records = list({record.dir: record for record in records}.values())
    if not records:
        raise ConfigError("there are no runs to compare")
    plans = [_plan(record) for record in records]
    names = display_names([(record.name, record.id) for record in records])
    base = _baseline_index(baseline, names, records)
    provenance, provenance_differences, provenance_warnings = compare_provenance(records, names)
    logged, names_logged = choose_logged(records)
    candidates = []
    warnings = []
    reported = []
    with_steps = [record for record in records if reports_steps(record)]
    unit: Unit = "samples/s" if all(map(reports_samples, with_steps)) else "steps/s"
    for record, name in zip(records, names, strict=True):
        candidate, candidate_warnings, samples = _read_candidate(record, name, logged, unit)
        reported.append(Reported(declared_by(record), samples, step_kind(record)))
        candidates.append(candidate)
        warnings += candidate_warnings
    resources = [
        count_resources(plan, core_count(record.state.provenance))
        for plan, record in zip(plans, records, strict=True)
    ]
    candidates = _add_ratios(candidates, resources, base)
    configs = [record.config for record in records]
    settings = compare_candidates(configs, plans, reported)
    if any(config.is_script for config in configs):
        warnings.append(AS_REPORTED)
    evaluated = [each for each in candidates if each.eval_samples is not None]
    if not _have_equal_evaluations(candidates):
        counts = [f"{each.name} {each.eval_samples:,}" for each in evaluated]
        text = f"the last evaluations have unequal numbers of samples: {', '.join(counts)}"
        warnings.append(text)
    if names_logged > len(logged):
        warnings.append(
            f"{len(logged)} of {names_logged:,} logged names are shown; "
            "`distrain export` writes all of them"
        )
    return Comparison(
        title=sentences.join_names(names),
        kind="runs",
        baseline=names[base],
        candidates=candidates,
        results=_describe_results(candidates, base, unit, settings.differences, records),
        unit=unit,
        equal=_common_group(records) | settings.equal,
        unchecked=settings.unchecked,
        differences=sorted(
            [*settings.differences, *provenance_differences], key=lambda each: each.fair
        ),
        warnings=warnings + provenance_warnings,
        provenance=provenance,
    )


def _common_group(records: Sequence[Record]) -> dict[str, str]:
    groups = {record.state.group for record in records}
    return {"group": group} if len(groups) == 1 and (group := groups.pop()) else {}


def _plan(record: Record) -> Plan:
    if record.state.plan is None:
        raise DistrainError(f"run {record.id} cannot be compared: it ended before it had a plan")
    return record.state.plan


def _baseline_index(baseline: str | None, names: Sequence[str], records: Sequence[Record]) -> int:
    if baseline is None:
        return 0
    found = [
        index
        for index, record in enumerate(records)
        if baseline in (names[index], record.name, record.id)
    ]
    if len(found) > 1:
        several = ", ".join(names[index] for index in found)
        raise ConfigError(f"the baseline {baseline} is the name of several runs: {several}")
    if not found:
        raise ConfigError(f"the baseline {baseline} is not among the runs: {', '.join(names)}")
    return found[0]


# --- one run --------------------------------------------------------------------------------------


def _read_candidate(
    record: Record, name: str, logged: Sequence[str], unit: Unit
) -> tuple[Candidate, list[str], float | None]:
    """Return the figures of a run, warnings about them, and the samples of a step.

    `logged` are the names of logged values to read.
    """
    state = record.state
    plan = _plan(record)
    summary = record.summary()
    part = find_steady_part(record, unit)
    after_step = part.step if part else 0
    figures = compute_figures(record, after_step)
    rates = part.rates if part else []
    evaluation = summary["eval"] or {}
    candidate = Candidate(
        name=name,
        strategy=record.config.strategy,
        launcher=record.config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
        folders=[str(record.dir)],
        rates=rates,
        outliers=find_outliers(rates) if rates else [],
        rate=median_interval(rates) if len(rates) >= MIN_MEASUREMENTS else None,
        phases=figures.phases if part else {},
        overlap=figures.overlap if part else None,
        host_memory=figures.host_memory,
        device_memory=figures.device_memory,
        cpu=figures.cpu,
        gpu=figures.gpu,
        joules_per_sample=figures.joules_per_sample,
        metrics={key: value for key, value in evaluation.items() if key != "samples"},
        eval_samples=evaluation.get("samples"),
        logged=record.last_logged(logged),
        curves=read_curves(record, logged),
        diagnosis=diagnose(record, after_step).sentence,
        problem=_describe_error(state),
    )
    is_silent = record.config.is_script and not record.keys()
    warnings = _status_warnings(state)
    warnings += [NO_STEPS] if is_silent else _rate_warnings(part)
    cores = core_count(state.provenance)
    if part and is_cpu_shared(figures.other_cores, cores):
        warnings.append(
            f"shared the CPU with other programs, which used {figures.other_cores:.1f} of the "
            f"host's {cores} cores"
        )
    warnings = [f"{name} {warning}" for warning in warnings]
    return candidate, warnings, figures.samples_per_step


def _describe_error(state: RunState) -> str:
    if state.error is None:
        return ""
    rank = "" if state.error.rank is None else f"{state.error.origin}: "
    return formatting.single_line(f"{rank}{state.error.type}: {state.error.message}")


def _status_warnings(state: RunState) -> list[str]:
    warnings = []
    if state.live:
        warnings.append(f"is {state.status}: its figures may change")
    elif state.status == "stopped":
        warnings.append(f"was stopped early ({state.reason})")
    elif state.status == "failed":
        warnings.append(f"failed: {_describe_error(state) or state.reason}")
    if state.facts and state.facts.start_step:
        warnings.append(f"continued another run from step {state.facts.start_step:,}")
    if state.attempts:
        warnings.append(f"was restarted {formatting.plural(state.attempts, 'time')}")
    return warnings


def _rate_warnings(part: SteadyPart | None) -> list[str]:
    if part is None:
        return ["has no measured rate: it took no step after the warm-up"]
    if len(part.rates) < MIN_MEASUREMENTS:
        windows = formatting.plural(len(part.rates), "timed window")
        return [f"has {windows}: too few for an interval"]
    if part.left_out >= LEFT_OUT_WARNING:
        share = formatting.percent(part.left_out)
        return [f"was not steady at first: the rates leave out {share} of its time"]
    return []


# --- all of them ----------------------------------------------------------------------------------


def _add_ratios(
    candidates: Sequence[Candidate], resources: Sequence[int], base: int
) -> list[Candidate]:
    """Add ratios to the baseline, and efficiencies relative to the first run of `single`."""
    pairs = _pair_count(candidates)
    singles = [
        index for index, each in enumerate(candidates) if each.strategy == "single" and each.rate
    ]
    result = []
    for index, candidate in enumerate(candidates):
        efficiency = None
        if singles:
            speedup = _ratio(candidate, candidates[singles[0]], pairs)
            times_more = resources[index] / resources[singles[0]]
            efficiency = speedup.divided_by(times_more) if speedup else None
        ratio = None if index == base else _ratio(candidate, candidates[base], pairs)
        result.append(msgspec.structs.replace(candidate, ratio=ratio, efficiency=efficiency))
    return result


def _pair_count(candidates: Sequence[Candidate]) -> int:
    """Return the number of pairs: any two may be compared once it is known which is fastest."""
    return max(len(candidates) * (len(candidates) - 1) // 2, 1)


def _ratio(candidate: Candidate, other: Candidate, comparisons: int) -> Interval | None:
    if candidate is other or candidate.rate is None or other.rate is None:
        return None
    return ratio_of_medians(candidate.rates, other.rates, comparisons)


def _best_metric(record: Record) -> tuple[str | None, str | None]:
    wanted = record.config.checkpoint  # a script has the defaults
    return best_metric(wanted.best, wanted.best_is, record.state.facts)


def _have_equal_evaluations(candidates: Sequence[Candidate]) -> bool:
    return len({each.eval_samples for each in candidates} - {None}) < 2


def _describe_results(
    candidates: Sequence[Candidate],
    base: int,
    unit: Unit,
    differences: Sequence[Difference],
    records: Sequence[Record],
) -> list[str]:
    """Return the result sentences; none says which run is best where their data differ."""
    pairs = _pair_count(candidates)
    found = sentences.describe_results(
        candidates, candidates[base].name, lambda one, other: _ratio(one, other, pairs), unit
    )
    has_one_data_set = all(each.key not in DATA_KEYS for each in differences)
    is_comparable = has_one_data_set and _have_equal_evaluations(candidates)
    evaluated = (n for n, candidate in enumerate(candidates) if candidate.metrics)
    chosen = {_best_metric(records[n]) for n in evaluated}
    metric, direction = chosen.pop() if len(chosen) == 1 else (None, None)
    best = sentences.describe_best(candidates, metric, direction) if is_comparable else []
    return [*best, *found, ONE_RUN_EACH] if found else best
