"""A comparison of runs that there are: what each has measured, one run of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

import msgspec

from runners import words
from runners.comparison import Comparison, Contestant, measured, verdicts
from runners.comparison.fairness import settings
from runners.comparison.origins import origins
from runners.errors import ConfigError, DistrainError
from runners.plan import Plan
from runners.record import Record
from runners.state import RunState
from runners.statistics import (
    LEAST_ROUNDS,
    Interval,
    median_interval,
    outliers,
    ratio_of_medians,
)

WORTH_TELLING = 0.05  # of the time
ONE_RUN_EACH = (
    "one run of each says nothing of how much two launches of the same differ; a bench does"
)


def compare(records: Sequence[Record], baseline: str | None = None) -> Comparison:
    """What the runs show of each other, as they are now; `baseline` is the first, or the one of
    that name or id. Raises ConfigError for a baseline that is not among them, DistrainError for
    a record that cannot be read.
    """
    records = list({record.dir: record for record in records}.values())
    plans = [_plan(record) for record in records]
    names = _names(records)
    base = _index(baseline, names, records)
    provenance, moved, warnings = origins(records, names)
    read = [_read(record, name) for record, name in zip(records, names, strict=True)]
    contestants = _related([contestant for contestant, _ in read], plans, base)
    equal, differences = settings([record.config for record in records], plans)
    differences = sorted([*differences, *moved], key=lambda each: each.fair)
    return Comparison(
        title=verdicts.listed(names),
        kind="runs",
        baseline=names[base],
        contestants=contestants,
        verdicts=_verdicts(contestants, base),
        equal=equal,
        differences=differences,
        warnings=[text for _, texts in read for text in texts] + warnings,
        provenance=provenance,
    )


def _plan(record: Record) -> Plan:
    if record.state.plan is None:
        raise DistrainError(f"run {record.id} never came so far as to have a plan")
    return record.state.plan


def _names(records: Sequence[Record]) -> list[str]:
    """The name that a person gave, else the word of the id; no two alike."""
    plain = [record.name or _word(record.id) for record in records]
    twice = Counter(plain)
    return [
        f"{name} {record.id[-4:]}" if twice[name] > 1 else name
        for name, record in zip(plain, records, strict=True)
    ]


def _word(run_id: str) -> str:
    date, _, rest = run_id.partition("-")
    time, _, rest = rest.partition("-")
    word = rest.rpartition("-")[0]
    return word if date.isdigit() and time.isdigit() and word else run_id


def _index(baseline: str | None, names: Sequence[str], records: Sequence[Record]) -> int:
    if baseline is None:
        return 0
    for index, record in enumerate(records):
        if baseline in (names[index], record.name, record.id):
            return index
    raise ConfigError(f"the baseline {baseline} is not among the runs: {', '.join(names)}")


# --- one run --------------------------------------------------------------------------------------


def _read(record: Record, name: str) -> tuple[Contestant, list[str]]:
    """A run by itself, and what is to be known of it."""
    state, plan, part = record.state, _plan(record), measured.steady(record)
    evaluation = record.summary()["eval"] or {}
    contestant = Contestant(
        name=name,
        strategy=record.config.strategy,
        launcher=record.config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
        folders=[str(record.dir)],
        host_memory=measured.host_memory(record),
        device_memory=measured.device_memory(record),
        metrics={key: value for key, value in evaluation.items() if key != "samples"},
        curves=measured.curves(record),
        problem=_problem(state),
    )
    if part is not None:
        contestant = msgspec.structs.replace(
            contestant,
            rates=part.rates,
            outliers=outliers(part.rates),
            rate=median_interval(part.rates) if len(part.rates) >= LEAST_ROUNDS else None,
            phases=measured.phases(record, part),
            cpu=measured.cpu(record, part),
            gpu=measured.gpu(record, part),
            joules_per_sample=measured.joules_per_sample(record, part),
        )
    doubts = _doubts(state, part) + ([_company(record, part)] if part else [])
    return contestant, [f"{name} {text}" for text in doubts if text]


def _company(record: Record, part: measured.Steady) -> str:
    """That the run had not the machine for itself, where it had not."""
    cores = (record.state.provenance.get("host") or {}).get("threads")
    others = measured.others(record, part, cores) if cores else 0.0
    if others < max(0.5, 0.1 * (cores or 0)):
        return ""
    return f"had company: other programs used {others:.1f} of the machine's {cores} cores meanwhile"


def _problem(state: RunState) -> str:
    if state.error is None:
        return ""
    who = "" if state.error.rank is None else f"rank {state.error.rank}: "
    return words.line(f"{who}{state.error.type}: {state.error.message}")


def _doubts(state: RunState, part: measured.Steady | None) -> list[str]:
    """Why a run's figures are not what they could be."""
    found = []
    if state.live:
        found.append(f"is {state.status}: its figures are those so far")
    elif state.status == "stopped":
        found.append(f"was stopped before its end ({state.reason})")
    elif state.status == "failed":
        found.append(f"failed: {_problem(state) or state.reason}")
    if state.facts and state.facts.start_step:
        found.append(f"went on from step {state.facts.start_step:,} of another run")
    if part is None:
        found.append("has no timed window: nothing of it is later than warm-up")
    elif len(part.rates) < LEAST_ROUNDS:
        found.append(
            f"has {words.things(len(part.rates), 'timed window')}: too few for an interval"
        )
    elif part.left_out >= WORTH_TELLING:
        share = words.percent(part.left_out)
        found.append(f"was not steady at first: {share} of its time is left out of the rates")
    return found


# --- all of them ----------------------------------------------------------------------------------


def _related(
    contestants: Sequence[Contestant], plans: Sequence[Plan], base: int
) -> list[Contestant]:
    """With ratios to the baseline, and efficiencies against the first that is `single`."""
    others = max(len(contestants) - 1, 1)
    alone = next(
        (i for i, each in enumerate(contestants) if each.strategy == "single" and each.rate), None
    )

    def ratio(each: Contestant, to: int) -> Interval | None:
        other = contestants[to]
        if each is other:
            return Interval(1.0, 1.0, 1.0) if each.rate else None
        return (
            ratio_of_medians(each.rates, other.rates, others) if each.rate and other.rate else None
        )

    found = []
    for index, each in enumerate(contestants):
        single = None if alone is None else ratio(each, alone)
        share = _devices(plans[index]) / (_devices(plans[alone or 0]) or inf)
        found.append(
            msgspec.structs.replace(
                each,
                ratio=None if index == base else ratio(each, base),
                efficiency=_divided(single, share) if single and share else None,
            )
        )
    return found


def _devices(plan: Plan) -> int:
    """0 on CPU, where ranks share the one processor."""
    return len({device.uuid for device in plan.devices if device.kind == "cuda"})


def _divided(interval: Interval, by: float) -> Interval:
    return Interval(interval.value / by, interval.low / by, interval.high / by)


def _verdicts(contestants: Sequence[Contestant], base: int) -> list[str]:
    found = verdicts.fastest(contestants, ratio_of_medians)
    name = contestants[base].name
    found += [verdicts.against(each.name, name, each.ratio) for each in contestants if each.ratio]
    return [*found, ONE_RUN_EACH] if found else []
