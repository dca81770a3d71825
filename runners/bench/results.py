"""What the measurements of a bench show: medians, ratios of the same rounds, sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import median, mode

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences
from distrain.runners.analysis.comparison.fairness import Reported, count_resources
from distrain.runners.analysis.comparison.figures import core_count
from distrain.runners.analysis.comparison.model import Candidate, Comparison, Unit
from distrain.runners.analysis.comparison.provenance_diff import describe_provenance
from distrain.runners.analysis.interval import MIN_MEASUREMENTS, Interval
from distrain.runners.analysis.statistics import find_outliers, median_interval, paired_ratio
from distrain.runners.bench.definition import Definition
from distrain.runners.bench.folder import RUNS
from distrain.runners.bench.limitations import find_limitations
from distrain.runners.bench.state import BenchState, Measurement
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.meta import read_meta

ByRound = Mapping[int, Measurement]
Measured = Mapping[str, ByRound]  # by candidate, without those that were never measured
GetValue = Callable[[Measurement], float | None]
TIME_TO_TARGET: GetValue = attrgetter("seconds_to_target")


def rate_getter(unit: Unit) -> GetValue:
    return lambda measurement: measurement.speed(unit)


def compare(definition: Definition, state: BenchState, folder: Path) -> Comparison:
    """Return what the measurements so far show. `folder` is that of the bench."""
    measured = _group_measurements(definition, state)
    baseline = _choose_baseline(definition, state, measured)
    family = _count_ratios(definition, measured)
    rate = rate_getter(state.unit)
    ratios = _ratios_to(baseline, measured, rate, family=family)
    reached = _candidates_reaching_target(measured)
    time_ratios = _ratios_to(baseline, reached, TIME_TO_TARGET, family=family)
    efficiencies = _efficiencies(definition, state, measured)
    candidates = [
        structs.replace(
            _make_candidate(name, definition, state, measured.get(name, {}), folder),
            ratio=ratios.get(name),
            efficiency=efficiencies.get(name),
            target_ratio=time_ratios.get(name),
        )
        for name in definition.configs
    ]
    settings = definition.settings(state.plans, reported_by(state))
    results = _describe_rates(candidates, measured, baseline, family, state.unit)
    target = str(definition.target) if definition.target else ""
    if target:
        results += _describe_times(target, measured, baseline, time_ratios)
    return Comparison(
        title=read_meta(folder).name or state.name or state.bench_id,
        kind="bench",
        baseline=baseline,
        candidates=candidates,
        results=results,
        unit=state.unit,
        equal=settings.equal,
        differences=settings.differences,
        unchecked=settings.unchecked,
        target=target,
        warnings=[*state.warnings, *find_limitations(definition, state)],
        provenance=describe_provenance(state.provenance),
    )


def widest_interval(definition: Definition, state: BenchState) -> float:
    """Return the precision of the least precise ratio, as a fraction of the ratio.

    If there is only one candidate, it is the precision of its rate; infinity if one is not known,
    also because a candidate was measured in too few rounds, or in none: a bench that is resumed
    measures again what had failed. Excluded candidates do not count.
    """
    included = definition.configs.keys() - state.excluded.keys()
    measured = {
        name: rounds
        for name, rounds in _group_measurements(definition, state).items()
        if name in included
    }
    baseline = _choose_baseline(definition, state, measured)
    family = _count_ratios(definition, measured)
    reached = _candidates_reaching_target(measured)
    rate = rate_getter(state.unit)
    needed = max(2, min(definition.rules.min_rounds, state.rounds))
    ratios = _ratios_to(baseline, measured, rate, min_rounds=needed, family=family)
    if len(ratios) < len(included) - 1:
        return inf
    intervals = [
        *ratios.values(),
        *_ratios_to(baseline, reached, TIME_TO_TARGET, family=family).values(),
    ]
    if not intervals:
        rates = [_values(rounds, rate) for rounds in measured.values()]
        intervals = [median_interval(each) for each in rates if len(each) >= needed]
    return max((interval.precision for interval in intervals), default=inf)


def reported_by(state: BenchState) -> dict[str, Reported]:
    """Return what the last run of each candidate has shown of its settings."""
    return {
        each.candidate: Reported(each.declared, each.samples_per_step, each.step_kind)
        for each in state.measurements
    }


# --- measurements ---------------------------------------------------------------------------------


def _group_measurements(definition: Definition, state: BenchState) -> Measured:
    """Return the measurements by candidate and round, in the order of the definition."""
    grouped: dict[str, dict[int, Measurement]] = {name: {} for name in definition.configs}
    for measurement in state.measurements:
        grouped[measurement.candidate][measurement.round] = measurement
    return {name: rounds for name, rounds in grouped.items() if rounds}


def _choose_baseline(definition: Definition, state: BenchState, measured: Measured) -> str:
    """Return the baseline; if it failed before it was measured, the first measured candidate."""
    baseline = definition.baseline
    if baseline in state.excluded and baseline not in measured:
        return next(iter(measured), baseline)
    return baseline


def _candidates_reaching_target(measured: Measured) -> Measured:
    """Return the candidates that reached the target in every round; other times are unknown."""
    return {
        name: rounds
        for name, rounds in measured.items()
        if all(TIME_TO_TARGET(each) is not None for each in rounds.values())
    }


def _values(rounds: ByRound, get_value: GetValue) -> list[float]:
    """Return the known values in the order of rounds."""
    values = [get_value(rounds[number]) for number in sorted(rounds)]
    return [value for value in values if value is not None]


# --- ratios ---------------------------------------------------------------------------------------


def _ratios_to(
    baseline: str,
    measured: Measured,
    get_value: GetValue,
    *,
    min_rounds: int = 2,
    family: int | None = None,
) -> dict[str, Interval]:
    """Return the ratio of each other candidate to the baseline, over the rounds that both have.

    Candidates with fewer than `min_rounds` such rounds are left out. `family` is the number of
    ratios that the intervals hold for together; by default that of all candidates here.
    """
    baseline_rounds = measured.get(baseline, {})
    others = {name: rounds for name, rounds in measured.items() if name != baseline}
    ratios = {}
    for name, rounds in others.items():
        values = []
        baseline_values = []
        for number in sorted(rounds.keys() & baseline_rounds.keys()):
            value = get_value(rounds[number])
            baseline_value = get_value(baseline_rounds[number])
            if value is not None and baseline_value is not None:
                values.append(value)
                baseline_values.append(baseline_value)
        if len(values) >= min_rounds:
            ratios[name] = paired_ratio(values, baseline_values, family or len(others))
    return ratios


def _count_ratios(definition: Definition, measured: Measured) -> int:
    """Return the number of ratios to the baseline: two per candidate if there is a target."""
    per_candidate = 2 if definition.target else 1
    return max(len(measured) - 1, 1) * per_candidate


def _efficiencies(
    definition: Definition, state: BenchState, measured: Measured
) -> dict[str, Interval]:
    """Return the rate per GPU (or core) of each candidate, relative to that of `single`."""
    single = next(
        (name for name in measured if definition.configs[name].strategy == "single"), None
    )
    if single is None:
        return {}
    cores = core_count(state.provenance)
    resources = {name: count_resources(state.plans[name], cores) for name in measured}
    return {
        name: ratio.divided_by(resources[name] / resources[single])
        for name, ratio in _ratios_to(single, measured, rate_getter(state.unit)).items()
    }


# --- candidates -----------------------------------------------------------------------------------


def _make_candidate(
    name: str, definition: Definition, state: BenchState, rounds: ByRound, folder: Path
) -> Candidate:
    config = definition.configs[name]
    plan = state.plans[name]
    measurements = [rounds[number] for number in sorted(rounds)]
    rates = _values(rounds, rate_getter(state.unit))
    times = _values(rounds, TIME_TO_TARGET)
    always_reached = bool(times) and len(times) == len(measurements)
    return Candidate(
        name=name,
        strategy=config.strategy,
        launcher=config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
        folders=[str(folder / RUNS / each.run_id) for each in measurements],
        rates=rates,
        outliers=find_outliers(rates),
        rate=median_interval(rates) if len(rates) > 1 else None,
        phases=_median_phases(measurements),
        overlap=_median(each.overlap for each in measurements),
        host_memory=_median(each.host_memory for each in measurements),
        device_memory=_median(each.device_memory for each in measurements),
        cpu=_median(each.cpu for each in measurements),
        gpu=_median(each.gpu for each in measurements),
        joules_per_sample=_median(each.joules_per_sample for each in measurements),
        seconds_to_target=median_interval(times) if always_reached else None,
        metrics=measurements[-1].metrics if measurements else {},
        diagnosis=_usual_diagnosis(measurements),
        problem=state.excluded.get(name, ""),
    )


def _usual_diagnosis(measurements: Sequence[Measurement]) -> str:
    """Return the last diagnosis of the kind that is most frequent."""
    if not measurements:
        return ""
    usual_kind = mode(each.kind for each in measurements)
    return [each.diagnosis for each in measurements if each.kind == usual_kind][-1]


def _median_phases(measurements: Sequence[Measurement]) -> dict[str, float]:
    """Return the median share of each phase, scaled so that they add up to 1."""
    known = [each.phases for each in measurements if each.phases]
    medians = {
        name: median(phases.get(name, 0.0) for phases in known)
        for name in (*PHASES, OTHER)
        if any(name in phases for phases in known)
    }
    total = sum(medians.values())
    return {name: value / total for name, value in medians.items()} if total else {}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# --- sentences ------------------------------------------------------------------------------------


def _describe_rates(
    candidates: Sequence[Candidate], measured: Measured, baseline: str, family: int, unit: Unit
) -> list[str]:
    """Describe the rates of the candidates that have enough rounds in common."""

    def ratio_of(candidate: Candidate, other: Candidate) -> Interval | None:
        pair = {name: measured.get(name, {}) for name in (candidate.name, other.name)}
        ratios = _ratios_to(
            other.name, pair, rate_getter(unit), min_rounds=MIN_MEASUREMENTS, family=family
        )
        return ratios.get(candidate.name)

    rated = [each for each in candidates if len(each.rates) >= MIN_MEASUREMENTS]
    return sentences.describe_results(rated, baseline, ratio_of, unit)


def _describe_times(
    target: str, measured: Measured, baseline: str, time_ratios: Mapping[str, Interval]
) -> list[str]:
    """Describe the times to the target, and which candidates do not always reach it."""
    texts = []
    baseline_rounds = measured.get(baseline, {})
    for name, ratio in time_ratios.items():
        if len(measured[name].keys() & baseline_rounds.keys()) >= MIN_MEASUREMENTS:
            texts.append(sentences.describe_time_ratio(name, baseline, target, ratio))
    for name, rounds in measured.items():
        reached = len(_values(rounds, TIME_TO_TARGET))
        if reached < len(rounds):
            total = formatting.plural(len(rounds), "round")
            texts.append(f"{name} reached {target} in {reached} of {total}; its time is not known")
    return texts
