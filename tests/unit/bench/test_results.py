"""Results and remaining time of a bench, from states as its process writes them."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

import pytest

from distrain.runners import bench
from distrain.runners.analysis.comparison.descriptions import result_cells
from distrain.runners.analysis.comparison.model import Comparison
from distrain.runners.bench.definition import Definition, Target
from distrain.runners.bench.estimate import estimate_remaining
from distrain.runners.bench.progress import describe_plan
from distrain.runners.bench.results import compare, widest_interval
from distrain.runners.bench.state import BenchState, CurrentRun, Measurement
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from tests.support.benches import config, definition

TWO_RANKS = {"strategy": "ddp", "launcher": "spawn", "devices": "cpu:2"}
BOTH = definition(
    {"single": config(train__threads=2), "ddp": config(**TWO_RANKS, train__threads=1)},
    repeats=20,
    seconds=5.0,
)
WIGGLE = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.0]


def measured(candidate: str, number: int, rate: float | None, **more: object) -> Measurement:
    known = {"seconds": 5.0, "warmup_s": 0.5, "steady": True, "duration_s": 10.0, **more}
    run_id = f"{number}-{candidate}"
    return Measurement(candidate=candidate, round=number, run_id=run_id, rate=rate, **known)


def state(rates: dict[str, list[float]], made: Definition = BOTH, **more: object) -> BenchState:
    """Return the state of a bench that measured these samples/s in its rounds, by candidate."""
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
    single, ddp = found.candidates
    assert found.baseline == "single"
    assert single.ratio is None
    assert ddp.ratio is not None
    assert ddp.ratio.contains(1.5)
    assert ddp.ratio.precision < 0.02
    assert ddp.rate is not None
    assert ddp.rate.precision > 0.1


def test_efficiency_is_per_core_on_cpu() -> None:
    rates = [100 * each for each in WIGGLE]
    _, ddp = comparison({"single": rates, "ddp": [1.5 * rate for rate in rates]}).candidates
    assert ddp.efficiency is not None
    assert ddp.efficiency.value == pytest.approx(1.5)  # both have two threads


def test_outliers_are_kept_and_marked() -> None:
    rates = [100 * each for each in WIGGLE]
    single, _ = comparison({"single": [*rates[:3], 40.0, *rates[4:]], "ddp": rates}).candidates
    assert single.outliers == [3]
    assert 40.0 in single.rates


def test_a_round_of_only_one_candidate_counts_for_its_rate_but_not_for_ratios() -> None:
    rates = [100 * each for each in WIGGLE]
    found = comparison({"single": rates, "ddp": rates[:-1]})
    assert [len(each.rates) for each in found.candidates] == [8, 7]


def test_results_need_enough_rounds_in_common() -> None:
    """A candidate excluded after two rounds has a ratio, but no result."""
    rates = [100 * each for each in WIGGLE]
    found = comparison({"single": rates, "ddp": rates[:2]}, rounds=8, excluded={"ddp": "no memory"})
    assert found.candidates[1].ratio is not None
    assert found.results == []
    assert comparison({"single": rates, "ddp": rates[:1]}).candidates[1].ratio is None


def test_few_rounds_give_no_results_even_if_the_rules_allow_no_more() -> None:
    found = comparison({"single": [100.0, 101.0], "ddp": [150.0, 152.0]})
    assert found.results == []
    assert any("too few" in text for text in found.warnings)


def test_an_excluded_candidate_does_not_count_for_the_precision() -> None:
    rates = [100 * each for each in WIGGLE]
    wild = state({"single": rates, "ddp": [50.0, 150.0]}, rounds=8, excluded={"ddp": "no"})
    assert widest_interval(BOTH, wild) < 0.03


def test_a_candidate_that_was_never_measured_counts_once_a_bench_is_resumed() -> None:
    """`resume` takes back what was excluded; the bench would end, and the reason would be lost."""
    configs = {**BOTH.configs, "half": config(train__threads=2, precision="bf16")}
    made = definition(configs, repeats=20, seconds=5.0)
    rates = [100 * each for each in WIGGLE]
    resumed = state({"single": rates, "half": rates}, made)
    assert widest_interval(made, resumed) == inf


def test_an_excluded_candidate_stays_in_the_table_with_its_reason() -> None:
    found = comparison({"single": [100.0]}, excluded={"ddp": "failed in round 1: no memory"})
    assert found.candidates[1].problem == "failed in round 1: no memory"
    assert found.candidates[1].rate is None
    assert any("ddp was excluded" in text for text in found.warnings)


def test_without_the_baseline_the_first_measured_candidate_replaces_it() -> None:
    found = comparison({"ddp": [100.0, 101.0]}, excluded={"single": "no"})
    assert found.baseline == "ddp"


def test_the_precision_is_that_of_the_widest_interval() -> None:
    rates = [100 * each for each in WIGGLE]
    assert widest_interval(BOTH, state({"single": rates, "ddp": rates[::-1]})) < 0.03
    wild = [rate * factor for rate, factor in zip(rates, [1, 2, 1, 3, 1, 2, 1, 1], strict=True)]
    assert widest_interval(BOTH, state({"single": rates, "ddp": wild})) > 0.5


@pytest.mark.parametrize("rounds", [(1,), (1, 6)])
def test_the_precision_is_not_known_of_a_candidate_that_few_rounds_have_measured(
    rounds: Sequence[int],
) -> None:
    all_rounds = [measured("single", n, 100 * each) for n, each in enumerate(WIGGLE, 1)]
    few = [measured("ddp", n, 150.0) for n in rounds]
    found = state({"single": []}, measurements=[*all_rounds, *few], rounds=8)
    assert widest_interval(BOTH, found) == inf


def test_the_duration_is_estimated_before_the_start() -> None:
    expected = estimate_remaining(BOTH, BenchState(bench_id="", created=0.0))
    assert expected.least == pytest.approx(7 * 2 * 13)
    assert expected.most == pytest.approx(20 * 2 * 13)


def test_the_duration_of_runs_to_a_target_is_unknown_until_one_has_ended() -> None:
    made = bench.make(BOTH.configs, {}, Target(metric="top1", value=0.95))
    assert estimate_remaining(made, BenchState(bench_id="", created=0.0)) is None
    assert describe_plan(made).endswith("until each ratio is known within ±2 %")
    first = state({"single": []}, made, measurements=[measured("single", 1, 100.0)], rounds=0)
    found = estimate_remaining(made, first)
    assert found is not None
    assert found.most == pytest.approx(20 * 2 * 10)


def test_the_remaining_time_follows_from_the_duration_of_runs() -> None:
    rates = [100 * each for each in WIGGLE]
    found = estimate_remaining(BOTH, state({"single": rates, "ddp": rates[::-1]}))
    assert found.most == pytest.approx(12 * 2 * 10)
    assert found.least == 0
    assert found.least <= found.likely <= found.most


def test_completed_runs_of_the_current_round_are_subtracted() -> None:
    current = CurrentRun(round=9, order=["ddp", "single"], candidate="single", began=0.0)
    rates = [100 * each for each in WIGGLE]
    found = estimate_remaining(BOTH, state({"single": rates, "ddp": rates}, current=current))
    assert found.most == pytest.approx(11 * 2 * 10)


def test_the_time_to_a_target_is_known_only_if_every_round_reached_it() -> None:
    ones = [measured("single", number, 100.0, seconds_to_target=9.0) for number in (1, 2)]
    found = compare(BOTH, state({"single": []}, measurements=ones), Path("/bench"))
    assert found.candidates[0].seconds_to_target is not None
    missed = [*ones, measured("single", 3, 100.0)]
    found = compare(BOTH, state({"single": []}, measurements=missed), Path("/bench"))
    assert found.candidates[0].seconds_to_target is None


def to_target(times: dict[str, list[float | None]]) -> Comparison:
    """Return the comparison of runs that took these seconds to the target; None missed it."""
    made = bench.make(BOTH.configs, {}, Target(metric="top1", value=0.95))
    ones = [
        measured(name, number, 100 * WIGGLE[number - 1], seconds_to_target=seconds)
        for name, values in times.items()
        for number, seconds in enumerate(values, 1)
    ]
    return compare(made, state({"single": []}, made, measurements=ones, rounds=8), Path("/bench"))


def test_the_time_to_a_target_has_a_result_of_its_own() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": slow, "ddp": [8 * each for each in WIGGLE[::-1]]})
    assert found.target == "top1 95.00 %"
    ratio = found.candidates[1].target_ratio
    assert ratio is not None
    assert ratio.contains(0.8)
    assert found.results[-1].startswith(
        "ddp takes 0.80× as long as single to reach top1 95.00 % (95 % CI "
    )
    same = to_target({"single": slow, "ddp": slow}).results[-1]
    assert same.startswith(
        "no significant difference between ddp and single in the time to top1 95.00 %"
    )


def test_a_candidate_that_missed_the_target_is_named_and_not_compared() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": slow, "ddp": [*slow[:-1], None]})
    assert found.candidates[1].target_ratio is None
    assert found.results[-1].startswith("ddp reached top1 95.00 % in 7 of 8 rounds")


def test_times_are_not_compared_if_the_baseline_missed_the_target() -> None:
    slow: list[float | None] = [10 * each for each in WIGGLE]
    found = to_target({"single": [*slow[:-1], None], "ddp": slow})
    assert found.candidates[1].seconds_to_target is not None
    assert found.candidates[1].target_ratio is None
    assert found.results[-1].startswith("single reached top1 95.00 % in 7 of 8 rounds")


def test_other_load_has_a_warning() -> None:
    origin = {"host": {"threads": 2, "name": "here", "memory": 1}, "versions": {"torch": "2.13"}}
    ones = [measured("single", number, 100.0, other_cores=number / 2) for number in (0, 1, 3)]
    found = compare(BOTH, state({"single": []}, measurements=ones, provenance=origin), Path("/b"))
    text = "2 of 3 runs shared the CPU with other programs, which used up to 1.5 of 2 cores"
    assert text in found.warnings
    assert found.provenance == {"host": "here", "torch": "2.13"}


def test_a_baseline_that_is_not_measured_yet_stays_the_baseline() -> None:
    found = comparison({"ddp": [100.0]}, rounds=0)
    assert found.baseline == "single"
    assert found.candidates[1].ratio is None


def test_with_a_target_the_precision_includes_the_time_ratios() -> None:
    wild: list[float | None] = [10 * each for each in (1, 2, 1, 3, 1, 2, 1, 1)]
    steady: list[float | None] = [10 * each for each in WIGGLE]
    made = bench.make(BOTH.configs, {}, Target(metric="top1", value=0.95))
    ones = [
        measured(name, number, 100 * WIGGLE[number - 1], seconds_to_target=seconds)
        for name, values in (("single", steady), ("ddp", wild))
        for number, seconds in enumerate(values, 1)
    ]
    assert widest_interval(made, state({"single": []}, made, measurements=ones, rounds=8)) > 0.5


def test_results_compare_the_same_rounds() -> None:
    drift = [100.0, 110, 130, 150, 170, 180, 200, 210]
    found = comparison({"single": drift, "ddp": [1.5 * rate for rate in drift]})
    assert found.results[0] == "fastest: ddp with 240 samples/s (median)"
    assert found.results[1].startswith("ddp is 1.50× single (95 % CI ")
    assert comparison({"single": drift[:3], "ddp": drift[:3]}).results == []


def test_a_single_round_has_no_interval() -> None:
    found = comparison({"single": [100.0], "ddp": [150.0, 151.0]})
    single, ddp = found.candidates
    assert single.rate is None
    assert result_cells(single, found)[1:4] == ["1", "100", "–"]
    assert result_cells(ddp, found)[3] == "149–152"


# --- scripts --------------------------------------------------------------------------------------

SCRIPTS = definition(
    {
        f"train.py {name}": RunConfig.from_dict({"script": {"path": "train.py", "args": [name]}})
        for name in ("--ddp", "--fsdp")
    },
    repeats=9,
    steps=200,
)


def scripts(missing: Sequence[str] = (), **more: Mapping[str, object]) -> Comparison:
    """Return the comparison of two scripts, one twice as fast, with fields of their runs.

    Those of `missing` were not measured.
    """
    plans = {name: plan_here(config) for name, config in SCRIPTS.configs.items()}
    ones = []
    for number, wiggle in enumerate(WIGGLE, 1):
        for name, rate in (("ddp", 10 * wiggle), ("fsdp", 20 / wiggle)):
            fields = {"step_rate": rate, "steps": 200, **more.get(name, {})}
            ones.append(measured(f"train.py --{name}", number, fields.pop("rate", None), **fields))
    ones = [each for each in ones if each.candidate not in missing]
    known = BenchState(bench_id="b", created=0.0, plans=plans, rounds=8, measurements=ones)
    return compare(SCRIPTS, known, Path("/bench"))


def test_scripts_without_samples_are_compared_by_steps() -> None:
    found = scripts()
    assert found.unit == "steps/s"
    assert found.results[0] == "fastest: train.py --fsdp with 20.0 steps/s (median)"
    assert (
        "rates are steps/s: the samples of train.py --ddp and train.py --fsdp are not known"
        in found.warnings
    )
    assert found.unchecked == [
        "model",
        "data",
        "train_samples",
        "global_batch",
        "precision",
        "seed",
    ]
    assert not found.unequal


def test_the_unit_is_one_that_all_candidates_have() -> None:
    known = {"rate": 160.0, "samples_per_step": 16.0}
    found = scripts(ddp=known)
    assert found.unit == "steps/s"
    assert "rates are steps/s: the samples of train.py --fsdp are not known" in found.warnings
    found = scripts(ddp=known, fsdp=known)
    assert found.unit == "samples/s"
    assert found.equal["samples per step (measured)"] == "16"
    assert "global_batch" not in found.unchecked


def test_what_scripts_declare_is_compared() -> None:
    found = scripts(
        ddp={"declared": {"global_batch": 64, "model": "gpt", "lr": 0.1}},
        fsdp={"declared": {"global_batch": 128, "model": "gpt", "lr": 0.2}},
    )
    assert found.equal["model"] == "gpt"
    assert found.unchecked == ["data", "train_samples", "precision", "seed"]
    assert [(each.key, each.values) for each in found.unequal] == [("global_batch", ["64", "128"])]
    fair = {each.key: each.values for each in found.differences if each.fair}
    assert fair == {"config.lr": ["0.1", "0.2"]}, "the names show the scripts"


def test_samples_per_step_must_be_equal_and_as_declared() -> None:
    found = scripts(
        ddp={"rate": 160.0, "samples_per_step": 16.0, "declared": {"global_batch": 8}},
        fsdp={"rate": 160.0, "samples_per_step": 32.0},
    )
    (unequal,) = found.unequal
    assert (unequal.key, unequal.values) == ("samples per step (measured)", ["16", "32"])
    text = "train.py --ddp declares a global batch of 8, but its steps had 16 samples"
    assert any(text in warning for warning in found.warnings)


def test_a_candidate_without_measurements_does_not_hide_what_is_unequal() -> None:
    found = scripts(ddp={"rate": 160.0, "samples_per_step": 16.0}, missing=["train.py --fsdp"])
    assert "global_batch" not in found.unchecked
    found = scripts(ddp={"declared": {"model": "gpt"}}, missing=["train.py --fsdp"])
    assert "model" not in found.unchecked


def test_steps_of_two_kinds_are_not_compared_by_steps() -> None:
    samples = {"rate": 160.0, "samples_per_step": 16.0}
    batches = {"step_kind": "batches"}
    found = scripts(fsdp=batches)
    assert [(each.key, each.values) for each in found.unequal] == [
        ("steps (counted)", ["optimizer steps", "batches"])
    ]
    assert not scripts(ddp=samples, fsdp=samples | batches).unequal, "by samples they are"


def test_phases_that_only_some_rounds_have_are_counted() -> None:
    ones = [{}, {"data": 0.5, "other": 0.5}, *[{"comm": 0.4, "data": 0.3, "other": 0.3}] * 5]
    configs = {"single": config()}
    made = definition(configs)
    measurements = [measured("single", n, 1.0, phases=each) for n, each in enumerate(ones, 1)]
    known = state({"single": [1.0]}, made, measurements=measurements)
    (found,) = compare(made, known, Path("/bench")).candidates
    assert found.phases == pytest.approx({"data": 0.3, "comm": 0.4, "other": 0.3})


@pytest.mark.parametrize(
    ("steps", "seconds", "measured"),
    [(120, 5.0, "120 of 200 steps"), (900, 0.5, "0.50 s of 1.2 s")],
)
def test_early_ends_are_reported(steps: int, seconds: float, measured: str) -> None:
    found = scripts(fsdp={"ended_early": True, "steps": steps, "seconds": seconds})
    text = f"train.py --fsdp ended by itself in 8 of 8 rounds, after {measured} were measured"
    assert text in found.warnings
