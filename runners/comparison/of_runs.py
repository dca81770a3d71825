"""A comparison of runs that there are: what each has measured, one run of each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runners import words
from runners.comparison import LEAST, Comparison, Contestant, Interval, measured, verdicts
from runners.comparison.curves import curves
from runners.comparison.fairness import resources, settings
from runners.comparison.figures import cores_of, figures, had_company
from runners.comparison.origins import origins
from runners.diagnosis import diagnose
from runners.errors import ConfigError, DistrainError
from runners.plan import Plan
from runners.record import Record
from runners.state import RunState, told_apart
from runners.statistics import (
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
    names = told_apart([(record.name, record.id) for record in records])
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
    found = figures(record, part.step if part else 0)
    rates = part.rates if part else []
    evaluation = record.summary()["eval"] or {}
    contestant = Contestant(
        name=name,
        strategy=record.config.strategy,
        launcher=record.config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
        folders=[str(record.dir)],
        rates=rates,
        outliers=outliers(rates) if rates else [],
        rate=median_interval(rates) if len(rates) >= LEAST else None,
        phases=found.phases if part else {},
        overlap=found.overlap if part else None,
        host_memory=found.host_memory,
        device_memory=found.device_memory,
        cpu=found.cpu,
        gpu=found.gpu,
        joules_per_sample=found.joules_per_sample,
        metrics={key: value for key, value in evaluation.items() if key != "samples"},
        curves=curves(record),
        diagnosis=diagnose(record, part.step if part else 0).sentence,
        problem=_problem(state),
    )
    doubts = [*_doubts(state, part), _company(state, found.others if part else None)]
    return contestant, [f"{name} {text}" for text in doubts if text]


def _company(state: RunState, others: float | None) -> str:
    """That the run had not the machine for itself, where it had not."""
    cores = cores_of(state.provenance)
    if not had_company(others, cores):
        return ""
    return f"had company: other programs used {others:.1f} of the machine's {cores} cores meanwhile"


def _problem(state: RunState) -> str:
    if state.error is None:
        return ""
    who = "" if state.error.rank is None else f"{state.error.who}: "
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
    if state.attempts:
        found.append(f"was started anew {words.things(state.attempts, 'time')} on the way")
    if part is None:
        found.append("has no timed window: nothing of it is later than warm-up")
    elif len(part.rates) < LEAST:
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
    judged = _pairs(contestants)
    alone = next(
        (i for i, each in enumerate(contestants) if each.strategy == "single" and each.rate), None
    )

    found = []
    for index, each in enumerate(contestants):
        single = None if alone is None else _ratio(each, contestants[alone], judged)
        share = resources(plans[index]) / resources(plans[alone or 0])
        found.append(
            msgspec.structs.replace(
                each,
                ratio=None if index == base else _ratio(each, contestants[base], judged),
                efficiency=single.over(share) if single else None,
            )
        )
    return found


def _pairs(contestants: Sequence[Contestant]) -> int:
    """All that may be compared, for which of them is the fastest is seen only afterwards."""
    return max(len(contestants) * (len(contestants) - 1) // 2, 1)


def _ratio(ours: Contestant, theirs: Contestant, judged: int) -> Interval | None:
    """One of so many that are judged together."""
    if ours is theirs or ours.rate is None or theirs.rate is None:
        return None
    return ratio_of_medians(ours.rates, theirs.rates, judged)


def _verdicts(contestants: Sequence[Contestant], base: int) -> list[str]:
    judged = _pairs(contestants)
    found = verdicts.said(contestants, contestants[base].name, lambda a, b: _ratio(a, b, judged))
    return [*found, ONE_RUN_EACH] if found else []
