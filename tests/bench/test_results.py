"""What measurements come to, and how long a bench takes: of states as a bench writes them."""

from pathlib import Path

import pytest
from benched import config, definition

from runners import bench
from runners.bench.definition import Definition, Target
from runners.bench.duration import left
from runners.bench.results import compare, precision
from runners.bench.state import BenchState, Measurement, Now
from runners.comparison import Comparison

TWO_RANKS = {"strategy": "ddp", "launcher": "spawn", "devices": "cpu:2"}
BOTH = definition(
    {"single": config(train__threads=2), "ddp": config(**TWO_RANKS, train__threads=1)},
    repeats=20,
    seconds=5.0,
)
WIGGLE = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.0]


def measured(contestant: str, number: int, rate: float, **more: object) -> Measurement:
    known = {"seconds": 5.0, "warmup_s": 0.5, "steady": True, "took": 10.0, **more}
    run_id = f"{number}-{contestant}"
    return Measurement(contestant=contestant, round=number, run_id=run_id, rate=rate, **known)


def state(rates: dict[str, list[float]], made: Definition = BOTH, **more: object) -> BenchState:
    """A bench that has measured so many samples/s in its rounds."""
    known = {
        "bench_id": "b",
        "created": 0.0,
        "status": "running",
        "plans": bench.plans(made),
        "rounds": min(map(len, rates.values())),
        "measurements": [
            measured(name, number, rate)
            for name, values in rates.items()
            for number, rate in enumerate(values, 1)
        ],
        **more,
    }
    return BenchState(**known)


def comparison(rates: dict[str, list[float]], **more: object) -> Comparison:
    return compare(BOTH, state(rates, **more), Path("/bench"))


def test_ratios_are_those_of_the_same_rounds() -> None:
    drift = [100.0, 110, 130, 150, 170, 180, 200, 210]
    pairs = zip(drift, WIGGLE, strict=True)
    found = comparison({"single": drift, "ddp": [1.5 * a * b for a, b in pairs]})
    single, ddp = found.contestants
    assert found.baseline == "single"
    assert single.ratio is None
    assert ddp.ratio is not None
    assert ddp.ratio.holds(1.5)
    assert ddp.ratio.precision < 0.02
    assert ddp.rate is not None
    assert ddp.rate.precision > 0.1


def test_efficiency_is_per_core_on_cpu() -> None:
    rates = [100 * each for each in WIGGLE]
    _, ddp = comparison({"single": rates, "ddp": [1.5 * rate for rate in rates]}).contestants
    assert ddp.efficiency is not None
    assert ddp.efficiency.value == pytest.approx(1.5)  # both have two threads


def test_outliers_are_kept_and_told() -> None:
    rates = [100 * each for each in WIGGLE]
    single, _ = comparison({"single": [*rates[:3], 40.0, *rates[4:]], "ddp": rates}).contestants
    assert single.outliers == [3]
    assert 40.0 in single.rates


def test_a_round_that_only_one_has_counts_for_its_rate_alone() -> None:
    rates = [100 * each for each in WIGGLE]
    found = comparison({"single": rates, "ddp": rates[:-1]})
    assert [len(each.rates) for each in found.contestants] == [8, 7]


def test_a_verdict_wants_enough_rounds_in_common() -> None:
    """One that was out after two rounds has a ratio to look at, and nothing is concluded of it."""
    rates = [100 * each for each in WIGGLE]
    found = comparison({"single": rates, "ddp": rates[:2]}, rounds=8, out={"ddp": "no memory"})
    assert found.contestants[1].ratio is not None
    assert found.verdicts == []
    assert comparison({"single": rates, "ddp": rates[:1]}).contestants[1].ratio is None


def test_few_rounds_give_no_verdict_however_few_were_asked_for() -> None:
    found = comparison({"single": [100.0, 101.0], "ddp": [150.0, 152.0]})
    assert found.verdicts == []
    assert any("too few" in text for text in found.warnings)


def test_one_that_is_out_does_not_keep_the_others_from_being_known() -> None:
    rates = [100 * each for each in WIGGLE]
    wild = state({"single": rates, "ddp": [50.0, 150.0]}, rounds=8, out={"ddp": "no"})
    assert precision(BOTH, wild) < 0.03


def test_one_that_is_out_is_in_the_table_with_its_reason() -> None:
    found = comparison({"single": [100.0]}, out={"ddp": "failed in round 1: no memory"})
    assert found.contestants[1].problem == "failed in round 1: no memory"
    assert found.contestants[1].rate is None
    assert any("ddp is out" in text for text in found.warnings)


def test_without_the_baseline_the_first_that_was_measured_takes_its_place() -> None:
    found = comparison({"ddp": [100.0, 101.0]}, out={"single": "no"})
    assert found.baseline == "ddp"


def test_the_precision_is_that_of_the_widest_interval() -> None:
    rates = [100 * each for each in WIGGLE]
    assert precision(BOTH, state({"single": rates, "ddp": rates[::-1]})) < 0.03
    wild = [rate * factor for rate, factor in zip(rates, [1, 2, 1, 3, 1, 2, 1, 1], strict=True)]
    assert precision(BOTH, state({"single": rates, "ddp": wild})) > 0.5


def test_before_it_begins_it_says_how_long_it_takes() -> None:
    expected = left(BOTH, BenchState(bench_id="", created=0.0))
    assert expected.least == pytest.approx(7 * 2 * 13)
    assert expected.most == pytest.approx(20 * 2 * 13)


def test_what_is_left_is_told_by_what_runs_took() -> None:
    rates = [100 * each for each in WIGGLE]
    found = left(BOTH, state({"single": rates, "ddp": rates[::-1]}))
    assert found.most == pytest.approx(12 * 2 * 10)
    assert found.least == 0
    assert found.least <= found.likely <= found.most


def test_a_run_that_was_done_of_the_round_is_not_left() -> None:
    now = Now(round=9, order=["ddp", "single"], contestant="single", began=0.0)
    rates = [100 * each for each in WIGGLE]
    found = left(BOTH, state({"single": rates, "ddp": rates}, now=now))
    assert found.most == pytest.approx(11 * 2 * 10)


def test_time_to_a_target_is_known_once_every_round_has_reached_it() -> None:
    ones = [measured("single", number, 100.0, seconds_to_target=9.0) for number in (1, 2)]
    found = compare(BOTH, state({"single": []}, measurements=ones), Path("/bench"))
    assert found.contestants[0].seconds_to_target is not None
    missed = [*ones, measured("single", 3, 100.0)]
    found = compare(BOTH, state({"single": []}, measurements=missed), Path("/bench"))
    assert found.contestants[0].seconds_to_target is None


def to_target(times: dict[str, list[float | None]]) -> Comparison:
    """A bench whose runs took so many seconds to the target; None never came there."""
    made = bench.make(BOTH.configs, {}, Target(metric="top1", value=0.95))
    ones = [
        measured(name, number, 100 * WIGGLE[number - 1], seconds_to_target=seconds)
        for name, values in times.items()
        for number, seconds in enumerate(values, 1)
    ]
    return compare(made, state({"single": []}, made, measurements=ones, rounds=8), Path("/bench"))


def test_the_time_to_a_target_has_a_verdict_of_its_own() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": slow, "ddp": [8 * each for each in WIGGLE[::-1]]})
    assert found.target == "top1 95.00 %"
    ratio = found.contestants[1].target_ratio
    assert ratio is not None
    assert ratio.holds(0.8)
    assert found.verdicts[-1].startswith(
        "ddp takes 0.80× as long as single to top1 95.00 % (95 % CI "
    )
    same = to_target({"single": slow, "ddp": slow}).verdicts[-1]
    assert same.startswith("no difference found between ddp and single in the time to top1 95.00 %")


def test_one_that_does_not_always_reach_the_target_is_told_and_not_judged() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": slow, "ddp": [*slow[:-1], None]})
    assert found.contestants[1].target_ratio is None
    assert found.verdicts[-1].startswith("ddp reached top1 95.00 % in 7 of 8 rounds")


def test_without_the_baseline_at_the_target_no_times_are_compared() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": [*slow[:-1], None], "ddp": slow})
    assert found.contestants[1].seconds_to_target is not None
    assert found.contestants[1].target_ratio is None
    assert found.verdicts[-1].startswith("single reached top1 95.00 % in 7 of 8 rounds")


def test_company_is_told() -> None:
    origin = {"host": {"threads": 2}}
    ones = [measured("single", number, 100.0, others=number / 2) for number in (0, 1, 3)]
    found = compare(BOTH, state({"single": []}, measurements=ones, provenance=origin), Path("/b"))
    text = "2 of 3 runs had company: other programs used up to 1.5 of 2 cores"
    assert text in found.warnings


def test_the_baseline_stays_though_it_is_not_measured_yet() -> None:
    found = comparison({"ddp": [100.0]}, rounds=0)
    assert found.baseline == "single"
    assert found.contestants[1].ratio is None


def test_a_bench_to_a_target_goes_on_until_that_ratio_is_known() -> None:
    wild: list[float | None] = [10 * each for each in (1, 2, 1, 3, 1, 2, 1, 1)]
    steady: list[float | None] = [10 * each for each in WIGGLE]
    made = bench.make(BOTH.configs, {}, Target(metric="top1", value=0.95))
    ones = [
        measured(name, number, 100 * WIGGLE[number - 1], seconds_to_target=seconds)
        for name, values in (("single", steady), ("ddp", wild))
        for number, seconds in enumerate(values, 1)
    ]
    assert precision(made, state({"single": []}, made, measurements=ones, rounds=8)) > 0.5


def test_verdicts_are_of_the_same_rounds_and_wait_for_enough_of_them() -> None:
    drift = [100.0, 110, 130, 150, 170, 180, 200, 210]
    found = comparison({"single": drift, "ddp": [1.5 * rate for rate in drift]})
    assert found.verdicts[0] == "fastest here: ddp with 240 samples/s"
    assert found.verdicts[1].startswith("ddp is 1.50× single (95 % CI ")
    assert comparison({"single": drift[:3], "ddp": drift[:3]}).verdicts == []
