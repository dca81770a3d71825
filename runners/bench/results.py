"""What the measurements of a bench come to: medians, ratios of the same rounds, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import median, mode

from msgspec import structs

from runners import words
from runners.bench.definition import Definition
from runners.bench.state import RUNS, BenchState, Measurement
from runners.comparison import LEAST, Comparison, Contestant, Interval, verdicts
from runners.comparison.fairness import resources
from runners.comparison.figures import cores_of, had_company
from runners.state import read_meta
from runners.statistics import median_interval, outliers, paired_ratio

ByRound = dict[int, Measurement]
Figure = Callable[[Measurement], float | None]
RATE: Figure = attrgetter("rate")
TO_TARGET: Figure = attrgetter("seconds_to_target")


def precision(definition: Definition, state: BenchState) -> float:
    """Half the widest interval of the ratios (or, of one contestant, of its rate), as a share."""
    measured = by_contestant(definition, state)
    found = {name: rounds for name, rounds in measured.items() if name not in state.out}
    baseline = baseline_of(definition, state, found)
    judged = _judged(definition, found)
    ratios = [*ratios_to(baseline, found, judged=judged).values()]
    ratios += ratios_to(baseline, _arrived(found), TO_TARGET, judged=judged).values()
    known = ratios or [_rate(rounds) for rounds in found.values()]
    return max((each.precision for each in known), default=inf)


def by_contestant(definition: Definition, state: BenchState) -> dict[str, ByRound]:
    """The measurements of each contestant by round, in the order of the definition."""
    found: dict[str, ByRound] = {name: {} for name in definition.configs}
    for each in state.measurements:
        found[each.contestant][each.round] = each
    return {name: rounds for name, rounds in found.items() if rounds}


def ratios_to(
    baseline: str,
    found: dict[str, ByRound],
    figure: Figure = RATE,
    least: int = 2,
    judged: int | None = None,
) -> dict[str, Interval]:
    """The ratio of each of the others to the baseline, of the rounds that both have, where these
    are at least so many; `judged` are looked at together, all of the others unless told.
    """
    base = found.get(baseline, {})
    others = {name: rounds for name, rounds in found.items() if name != baseline}
    ratios = {}
    for name, rounds in others.items():
        both = [
            pair
            for i in sorted(rounds.keys() & base.keys())
            if None not in (pair := (figure(rounds[i]), figure(base[i])))
        ]
        if len(both) >= least:
            ours, theirs = zip(*both, strict=True)
            ratios[name] = paired_ratio(ours, theirs, judged or len(others))
    return ratios


def _judged(definition: Definition, found: dict[str, ByRound]) -> int:
    """How many ratios to the baseline there are to look at: two of each where there is a target."""
    return max(len(found) - 1, 1) * (2 if definition.target else 1)


def _figures(rounds: ByRound, numbers: Iterable[int], figure: Figure) -> list[float]:
    return [value for i in numbers if (value := figure(rounds[i])) is not None]


def _arrived(found: dict[str, ByRound]) -> dict[str, ByRound]:
    """Those that came to the target in every round: the time of the others is not known."""
    return {
        name: rounds
        for name, rounds in found.items()
        if all(TO_TARGET(each) is not None for each in rounds.values())
    }


def baseline_of(definition: Definition, state: BenchState, found: dict[str, ByRound]) -> str:
    """The baseline; where that is out and was never measured, the first contestant that was."""
    wanted = definition.baseline
    lost = wanted in state.out and wanted not in found
    return next(iter(found), wanted) if lost else wanted


def _rate(rounds: ByRound) -> Interval:
    return median_interval(_figures(rounds, rounds, RATE))


def compare(definition: Definition, state: BenchState, folder: Path) -> Comparison:
    """The bench as it stands, of whatever rounds were measured."""
    found = by_contestant(definition, state)
    baseline = baseline_of(definition, state, found)
    judged = _judged(definition, found)
    ratios = ratios_to(baseline, found, judged=judged)
    times = ratios_to(baseline, _arrived(found), TO_TARGET, judged=judged)
    efficiencies = _efficiencies(definition, state, found)
    contestants = [
        structs.replace(
            _contestant(name, definition, state, found.get(name, {}), folder),
            ratio=ratios.get(name),
            efficiency=efficiencies.get(name),
            target_ratio=times.get(name),
        )
        for name in definition.configs
    ]
    equal, differences = definition.settings(state.plans)
    target = str(definition.target or "")
    return Comparison(
        title=read_meta(folder).name or state.name or state.bench_id,
        kind="bench",
        baseline=baseline,
        contestants=contestants,
        verdicts=[
            *_verdicts(contestants, found, baseline, judged),
            *(_on_target(target, found, baseline, times) if target else []),
        ],
        equal=equal,
        differences=differences,
        target=target,
        warnings=[*state.warnings, *_unsure(state)],
        provenance=state.provenance,
    )


def _contestant(
    name: str, definition: Definition, state: BenchState, rounds: ByRound, folder: Path
) -> Contestant:
    config, plan = definition.configs[name], state.plans[name]
    ones = [rounds[number] for number in sorted(rounds)]
    rates = [each.rate for each in ones]
    times = _figures(rounds, sorted(rounds), TO_TARGET)
    return Contestant(
        name=name,
        strategy=config.strategy,
        launcher=config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
        folders=[str(folder / RUNS / each.run_id) for each in ones],
        rates=rates,
        outliers=outliers(rates),
        rate=median_interval(rates) if rates else None,
        phases=_shares(ones),
        overlap=_median(each.overlap for each in ones),
        host_memory=_median(each.host_memory for each in ones),
        device_memory=_median(each.device_memory for each in ones),
        cpu=_median(each.cpu for each in ones),
        gpu=_median(each.gpu for each in ones),
        joules_per_sample=_median(each.joules_per_sample for each in ones),
        seconds_to_target=median_interval(times) if len(times) == len(ones) > 0 else None,
        metrics=ones[-1].metrics if ones else {},
        diagnosis=_diagnosis(ones),
        problem=state.out.get(name, ""),
    )


def _diagnosis(ones: Sequence[Measurement]) -> str:
    """The last of the kind that was found most often."""
    usual = mode(each.kind for each in ones) if ones else ""
    return next((each.diagnosis for each in reversed(ones) if each.kind == usual), "")


def _efficiencies(
    definition: Definition, state: BenchState, found: dict[str, ByRound]
) -> dict[str, Interval]:
    """Of each contestant against `single`: the ratio of rates over that of GPUs, or of cores."""
    alone = [name for name in found if definition.configs[name].strategy == "single"]
    if not alone:
        return {}
    base = resources(state.plans[alone[0]])
    return {
        name: ratio.over(resources(state.plans[name]) / base)
        for name, ratio in ratios_to(alone[0], found).items()
    }


def _verdicts(
    contestants: list[Contestant], found: dict[str, ByRound], baseline: str, judged: int
) -> list[str]:
    """Of those that have enough rounds in common."""

    def ratio(ours: Contestant, theirs: Contestant) -> Interval | None:
        pair = {each.name: found.get(each.name, {}) for each in (ours, theirs)}
        return ratios_to(theirs.name, pair, least=LEAST, judged=judged).get(ours.name)

    rated = [each for each in contestants if len(each.rates) >= LEAST]
    return verdicts.said(rated, baseline, ratio)


def _on_target(
    target: str, found: dict[str, ByRound], baseline: str, times: dict[str, Interval]
) -> list[str]:
    """Who takes how long to come there, and who does not always come."""
    told = [
        verdicts.in_time(name, baseline, target, ratio)
        for name, ratio in times.items()
        if len(found[name].keys() & found.get(baseline, {}).keys()) >= LEAST
    ]
    for name, rounds in found.items():
        came = len(_figures(rounds, rounds, TO_TARGET))
        if came < len(rounds):
            all_rounds = words.things(len(rounds), "round")
            told.append(f"{name} reached {target} in {came} of {all_rounds}; its time is not known")
    return told


def _unsure(state: BenchState) -> list[str]:
    found = [f"{name} is out: {why}" for name, why in state.out.items()]
    if 0 < state.rounds < LEAST:
        done = words.things(state.rounds, "round")
        found.append(f"{done} done: too few for intervals that deserve the name, or for a verdict")
    cores = cores_of(state.provenance)
    disturbed = [e.others for e in state.measurements if had_company(e.others, cores)]
    if disturbed:
        share = f"{len(disturbed)} of {words.things(len(state.measurements), 'run')}"
        most = max(others or 0.0 for others in disturbed)
        found.append(f"{share} had company: other programs used up to {most:.1f} of {cores} cores")
    restless = dict.fromkeys(each.contestant for each in state.measurements if not each.steady)
    return [*found, *(f"{name} came to no steady pace in some rounds" for name in restless)]


def _shares(ones: Sequence[Measurement]) -> dict[str, float]:
    """Medians of the phases, that add up to 1 again."""
    names = ones[0].phases if ones else {}
    medians = {name: median(each.phases.get(name, 0.0) for each in ones) for name in names}
    whole = sum(medians.values())
    return {name: value / whole for name, value in medians.items()} if whole else {}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
