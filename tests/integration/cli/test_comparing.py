"""`distrain compare`: the figures of recorded runs, warnings, results and formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from distrain.runners.analysis.comparison.curves import MAX_LOGGED_CURVES
from distrain.runners.analysis.comparison.model import Candidate
from distrain.runners.analysis.comparison.recorded_runs import compare
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import GpuSample, HostSample, ScriptSettings
from distrain.runners.records.state import RunError, read_state, write_state
from distrain.runners.system.devices import Device

from .conftest import Distrain, SampledRun

Fabricate = Callable[..., SampledRun]


@pytest.fixture
def two(fabricate: Fabricate) -> list[SampledRun]:
    """Return two equally long runs: 640 samples/s on one rank, 1,280 on two."""
    alone = fabricate("alone", world=1, strategy="single", launcher="inline")
    both = fabricate("both", world=2)
    return [
        each.steps(20).evaluation(0.9).steps(20).evaluation(0.95).end() for each in (alone, both)
    ]


def candidates(*runs: SampledRun) -> list[Candidate]:
    return compare([run.record for run in runs]).candidates


# --- figures --------------------------------------------------------------------------------------


def test_rates_shares_and_metrics_are_those_of_the_records(two: list[SampledRun]) -> None:
    alone, both = candidates(*two)
    assert alone.rates == pytest.approx([640.0] * 20)
    assert both.rates == pytest.approx([1280.0] * 20)
    assert both.rate is not None
    assert both.ratio is not None
    assert (both.rate.value, both.ratio.value) == pytest.approx((1280.0, 2.0))
    assert alone.ratio is None
    phases = {"data": 0.1, "forward": 0.2, "backward": 0.3, "comm": 0.2, "optimizer": 0.1}
    assert both.phases == pytest.approx({**phases, "other": 0.1})
    assert both.metrics == {"loss": 0.5, "top1": 0.95}
    assert (both.cpu, both.host_memory) == pytest.approx((100.0, 6e8))
    assert (both.gpu, both.device_memory, both.joules_per_sample) == (None, None, None)


def test_warm_up_and_unsteady_steps_are_left_out(fabricate: Fabricate) -> None:
    run = fabricate("slow at first", world=1, strategy="single", launcher="inline")
    usual = run.window

    def slow(rank: int, loss: float) -> object:
        window = usual(rank, loss)
        if run.step <= 5:
            return msgspec.structs.replace(window, warmup=True, seconds=5.0)
        return msgspec.structs.replace(window, seconds=0.1 if run.step > 20 else 0.4)

    run.window = slow  # type: ignore[assignment,method-assign]
    found = compare([run.steps(200).end().record])
    (one,) = found.candidates
    assert one.rates == pytest.approx([640.0] * 20, rel=0.2)
    assert one.rate is not None
    assert one.rate.value == pytest.approx(640.0)
    (text,) = found.warnings
    assert text.startswith("slow at first was not steady at first: the rates leave out 2")


def test_energy_comes_from_the_counters_of_all_gpus(fabricate: Fabricate) -> None:
    run = fabricate("green", world=2).steps(40)
    for gpu in range(2):
        for tick in range(9):
            run.writer.add(
                GpuSample(
                    time=run.began + tick / 2,
                    gpu=gpu,
                    uuid=f"GPU-{gpu}",
                    name="GPU",
                    utilisation=80.0 + 10 * gpu,
                    memory_used=1e9 * (1 + gpu),
                    energy=1e6 + 100 * tick,
                    power=200.0,
                )
            )
    (one,) = candidates(run.end())
    # 400 W of both, for 1,280 samples/s.
    assert one.joules_per_sample == pytest.approx(400 / 1280, rel=0.05)
    assert (one.gpu, one.device_memory) == (85.0, 2e9)
    assert set(one.curves["power"].values) == {400.0}


def test_efficiency_is_the_rate_per_gpu_relative_to_single(
    two: list[SampledRun],
) -> None:
    for run, gpus in zip(two, (1, 2), strict=True):
        devices = [Device(kind="cuda", index=index, uuid=f"GPU-{index}") for index in range(gpus)]
        state = read_state(run.dir)
        assert state.plan
        plan = msgspec.structs.replace(state.plan, devices=devices)
        write_state(run.dir, msgspec.structs.replace(state, plan=plan))
    found = [each.efficiency for each in candidates(*two)]
    assert [each and each.value for each in found] == [None, pytest.approx(1.0)]


def test_curves_are_by_step_and_by_seconds_of_training(two: list[SampledRun]) -> None:
    curves = candidates(*two)[1].curves
    assert list(curves) == ["loss", "eval top1", "eval loss"]
    assert curves["loss"].step == [float(step) for step in range(1, 41)]
    assert curves["loss"].values == pytest.approx([1 / step for step in range(1, 41)])
    assert (curves["eval top1"].step, curves["eval top1"].values) == ([20.0, 40.0], [0.9, 0.95])
    assert curves["eval top1"].time == pytest.approx([2.0, 4.0])


def test_long_runs_give_short_curves(fabricate: Fabricate) -> None:
    (one,) = candidates(fabricate("long", world=1, strategy="single").steps(3000).end())
    assert len(one.curves["loss"].values) <= 300
    assert one.rates == pytest.approx([640.0] * 20)


# --- warnings and results -------------------------------------------------------------------------


def test_incomplete_runs_are_in_the_table_with_a_warning(
    two: list[SampledRun], fabricate: Fabricate
) -> None:
    error = RunError(rank=1, type="ValueError", message="no")
    failed = fabricate("failed").steps(20).end("failed", error=error)
    stopped = fabricate("stopped").steps(20).end("stopped", reason="Ctrl-C")
    short, live = fabricate("short").steps(3).end(), fabricate("live").steps(20)
    waiting = fabricate("waiting")
    runs = [two[0], failed, stopped, short, live, waiting]
    found = compare([run.record for run in runs])
    by_name = dict(zip([each.name for each in found.candidates], found.candidates, strict=True))
    assert by_name["failed"].problem == "rank 1: ValueError: no"
    assert by_name["failed"].rate is not None
    assert (by_name["short"].rate, len(by_name["short"].rates)) == (None, 3)
    assert by_name["waiting"].rates == []
    for text in (
        "failed failed: rank 1: ValueError: no",
        "stopped was stopped early (Ctrl-C)",
        "short has 3 timed windows: too few for an interval",
        "live is running: its figures may change",
        "waiting has no measured rate: it took no step after the warm-up",
    ):
        assert text in found.warnings


def test_a_resumed_run_has_a_warning(fabricate: Fabricate) -> None:
    run = fabricate("resumed").steps(20)
    facts = read_state(run.dir).facts
    assert facts
    run.end(facts=msgspec.structs.replace(facts, start_step=1200))
    assert compare([run.record]).warnings == ["resumed continued another run from step 1,200"]


def test_other_load_on_the_host_has_a_warning(fabricate: Fabricate) -> None:
    run = fabricate("crowded", world=2).steps(40)
    for tick in range(9):
        run.writer.add(
            HostSample(
                time=run.began + tick / 2, cpu=75.0, memory_used=1e9, memory_total=2e9, load=3.0
            )
        )
    # The ranks use half a core each.
    found = compare([run.end(provenance={"host": {"threads": 4}}).record])
    assert found.warnings == [
        "crowded shared the CPU with other programs, which used 2.0 of the host's 4 cores"
    ]


def test_another_host_and_other_versions_make_it_unequal(
    two: list[SampledRun], fabricate: Fabricate
) -> None:
    origin = {"host": {"name": "elsewhere"}, "versions": {"torch": "1.0"}, "git": {"commit": "abc"}}
    moved = fabricate("moved").steps(40).end(provenance=origin)
    here = {"host": {"name": "here"}, "versions": {"torch": "2.0"}, "git": {"commit": "def"}}
    stayed = fabricate("stayed").steps(40).end(provenance=here)
    found = compare([stayed.record, moved.record])
    assert {each.key for each in found.unequal} == {"host", "torch"}
    assert "torch differs: 2.0 (stayed) and 1.0 (moved)" in found.warnings
    assert "commit differs: def (stayed) and abc (moved)" in found.warnings


def test_results_state_that_there_is_one_run_of_each(two: list[SampledRun]) -> None:
    found = compare([run.record for run in two])
    assert found.results[0].endswith("; one run each, so no statement about noise")
    assert found.results[1] == "fastest: both with 1,280 samples/s (median)"
    assert found.results[2].startswith("both is 2.00× alone (95 % CI 2.00–2.00)")
    assert "cannot show how much two launches of the same config differ" in found.results[-1]
    assert compare([two[0].record]).results == []


def test_the_baseline_is_the_first_or_the_one_asked_for(two: list[SampledRun]) -> None:
    records = [run.record for run in two]
    assert compare(records).baseline == "alone"
    for wanted in ("both", two[1].id):
        found = compare(records, baseline=wanted)
        assert found.baseline == "both"
        assert found.candidates[0].ratio is not None
        assert found.candidates[0].ratio.value == pytest.approx(0.5)
    with pytest.raises(ConfigError, match="nobody is not among the runs: alone, both"):
        compare(records, baseline="nobody")
    with pytest.raises(ConfigError, match="no runs to compare"):
        compare([])


def test_runs_of_one_name_get_different_names_and_a_run_given_twice_counts_once(
    fabricate: Fabricate,
) -> None:
    runs = [fabricate("same").steps(40).end() for _ in range(2)]
    names = [each.name for each in candidates(*runs, runs[0])]
    assert names == [f"same {run.id[-4:]}" for run in runs]
    records = [run.record for run in runs]
    assert compare(records, baseline=names[1]).baseline == names[1]
    with pytest.raises(ConfigError, match=f"same is the name of several runs: {', '.join(names)}"):
        compare(records, baseline="same")


# --- scripts --------------------------------------------------------------------------------------


@pytest.fixture
def two_scripts(fabricate: Fabricate) -> list[SampledRun]:
    """Return runs of a script with another learning rate; no rank reports samples."""
    runs = []
    for lr in ("0.1", "0.2"):
        run = fabricate(f"lr {lr}", script={"path": "train.py", "args": ["--lr", lr]})
        settings = ScriptSettings(time=run.now, rank=0, config={"lr": float(lr), "seed": 1})
        run.writer.add(settings)
        for step in range(1, 6):
            run.logged(**{"train/loss": float(lr) / step}).evaluation(0.9)
        runs.append(run.end())
    return runs


def test_scripts_are_compared_by_what_they_log_and_declare(two_scripts: list[SampledRun]) -> None:
    found = compare([run.record for run in two_scripts])
    one, other = found.candidates
    assert (one.logged, other.logged) == ({"train/loss": 0.02}, {"train/loss": 0.04})
    curve = other.curves["logged train/loss"]
    assert curve.step == [1.0, 2.0, 3.0, 4.0, 5.0]
    # Rank 1 logs one more than rank 0.
    assert curve.values == pytest.approx([0.2 / step + 0.5 for step in range(1, 6)])
    assert curve.low == pytest.approx([0.2 / step for step in range(1, 6)])
    assert curve.high == pytest.approx([0.2 / step + 1 for step in range(1, 6)])
    assert (one.rates, one.phases, one.metrics["top1"]) == ([], {}, 0.9)
    assert [each.key for each in found.differences] == ["script", "config.lr"]
    assert (found.unequal, found.equal["seed"]) == ([], "1")
    assert found.unchecked == ["model", "data", "train_samples", "global_batch", "precision"]
    assert found.warnings == [
        "lr 0.1 has no measured rate: no step of the script was recorded",
        "lr 0.2 has no measured rate: no step of the script was recorded",
        "evaluations, logged values and samples of scripts are as the scripts report them",
    ]


def test_every_format_shows_what_scripts_log(
    distrain: Distrain, two_scripts: list[SampledRun], tmp_path: Path
) -> None:
    names = ("lr 0.1", "lr 0.2")
    text = distrain("compare", *names).stdout
    unchecked = "not checked, because the scripts do not declare it: model, data, "
    assert text.startswith(unchecked)
    assert "train/loss (last)" in text
    assert "?  config.lr  0.1" in text
    assert "logged train/loss  lr 0.1" in text
    assert "last point" in text
    assert unchecked in distrain("compare", *names, "--format", "md").stdout
    distrain("compare", *names, "--format", "html", "--out", "report.html")
    report = (tmp_path / "report.html").read_text()
    assert unchecked.capitalize() in report
    assert '<h2 id="logged-2-title">train/loss</h2>' in report


def test_of_many_names_those_that_most_runs_have_are_compared(fabricate: Fabricate) -> None:
    script = {"path": "train.py"}
    many = fabricate("many", script=script)
    many.logged(**{f"layer{number}": 1.0 for number in range(60)})
    few = fabricate("few", script=script).logged(layer59=1.0)
    found = compare([many.end().record, few.end().record])
    curves = [name for name in found.candidates[0].curves if name.startswith("logged ")]
    assert curves[:2] == ["logged layer59", "logged layer0"]
    assert len(curves) == MAX_LOGGED_CURVES
    assert found.warnings[-1].startswith("24 of 60 logged names are shown")


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_or_writes_each_format(
    distrain: Distrain, two: list[SampledRun], tmp_path: Path
) -> None:
    table = distrain("compare", "alone", "both")
    assert (table.returncode, table.stderr) == (0, "")
    for text in ("both is 2.00× alone", "1,280", "eval top1", "▁", "ranks"):
        assert text in table.stdout
    found = json.loads(distrain("compare", "alone", "both", "--json").stdout)
    assert [each["name"] for each in found["candidates"]] == ["alone", "both"]
    marked = distrain("compare", "alone", "both", "--format", "md", "--out", "pr.md")
    assert (marked.stdout, marked.stderr) == ("", "wrote pr.md\n")
    assert "### alone and both" in (tmp_path / "pr.md").read_text()
    stderr = distrain("compare", "alone", "both", "--format", "html").stderr
    (report,) = tmp_path.glob("compare-*.html")
    assert stderr == f"wrote {report.name}\n"
    assert report.read_text().startswith("<!doctype html>")
    printed = distrain("compare", "alone", "both", "--format", "html", "--out", "-")
    assert printed.stdout.startswith("<!doctype html>")


def test_a_comparison_written_as_json_is_shown_again(
    distrain: Distrain, two: list[SampledRun]
) -> None:
    distrain("compare", "alone", "both", "--json", "--out", "kept.json")
    again = distrain("compare", "kept.json", "--format", "md")
    assert again.stdout == distrain("compare", "alone", "both", "--format", "md").stdout


def test_a_comparison_of_an_older_version_is_shown_too(
    distrain: Distrain, two: list[SampledRun], tmp_path: Path
) -> None:
    kept = json.loads(distrain("compare", "alone", "both", "--json").stdout)
    older = kept | {"contestants": kept.pop("candidates"), "verdicts": kept.pop("results")}
    (tmp_path / "older.json").write_text(json.dumps(older))
    shown = distrain("compare", "older.json", "--format", "md")
    assert shown.stdout == distrain("compare", "alone", "both", "--format", "md").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("alone", "nobody"), 2, "no run or bench 'nobody'"),
        (("alone", "both", "--baseline", "nobody"), 2, "the baseline nobody is not among the runs"),
        (("absent.json",), 1, "cannot read absent.json: No such file or directory"),
        (("alone", "--out", "absent/x"), 1, "cannot write to absent/x: No such file or directory"),
        (("alone", "--format", "pdf"), 2, "invalid choice: 'pdf'"),
    ],
)
def test_a_mistake_is_one_sentence(
    distrain: Distrain, two: list[SampledRun], arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    done = distrain("compare", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- a filter -------------------------------------------------------------------------------------


def test_the_runs_that_match_a_filter_are_compared_in_words(
    distrain: Distrain, fabricate: Fabricate
) -> None:
    for name, lr, top1 in (("a", 0.1, 0.975), ("b", 0.05, 0.981), ("outside", 0.5, 0.99)):
        fabricate(name, **{"train.lr": lr}).steps(20).evaluation(top1).end()
    text = distrain("compare", "--filter", "lr<0.2").stdout
    assert "b is best by top1: 98.10 % against 97.50 %; one run each, so no statement" in text
    assert "outside" not in text
    other_data = {"data.name": "text"}, {"data.root": "/other"}, {"data.eval_limit": 8}
    for name, data in zip("cde", other_data, strict=True):
        fabricate(name, **data, **{"train.lr": 0.3}).steps(20).evaluation(0.99).end()
        assert "is best by" not in distrain("compare", "a", name).stdout
    refused = distrain("compare", "--filter", "lr>1")
    assert refused.returncode == 2
    assert "matches lr>1" in refused.stderr
    assert "choose them with --filter" in distrain("compare").stderr
