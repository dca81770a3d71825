"""Definitions of benches: from presets, stored as TOML, refused if they would be unequal."""

from pathlib import Path

import pytest
from msgspec import structs

from distrain.runners import bench
from distrain.runners.analysis.comparison.fairness import compare_settings
from distrain.runners.bench.definition import Definition, Target
from distrain.runners.bench.measurement import config_for_round
from distrain.runners.bench.progress import shell_command
from distrain.runners.errors import ConfigError
from tests.support.benches import config, definition
from tests.support.records import FACTS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(defined: Definition) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        bench.plans(defined)
    return dict(caught.value.problems)


def test_a_definition_survives_a_round_trip_through_toml() -> None:
    defined = bench.make(
        bench.candidates(["single", "ddp,precision=bf16"], {"train.lr": 0.2}),
        {"repeats": 9, "precision": 0.01, "baseline": "single"},
        Target(metric="top1", value=0.95),
    )
    assert Definition.from_toml(defined.to_toml()) == defined


def test_all_problems_of_a_file_are_reported_with_their_keys() -> None:
    text = "[target]\nvalue = 1.0\n[candidates.a.script]\nenv = { RANK = '1' }\n"
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    assert dict(caught.value.problems) == {
        "target.metric": "is missing; it must be text",
        "candidates.a.script": "name one program, by script.path or by script.module",
        "candidates.a.script.env.RANK": "is set by the launcher",
    }


def test_candidates_are_presets_or_files_with_changes_of_their_own(folder: Path) -> None:
    (folder / "mine.toml").write_text('strategy = "allreduce"\n')
    found = bench.candidates(["ddp", "ddp,precision=bf16", "./mine.toml"], {"train.lr": 0.5})
    assert list(found) == ["ddp", "ddp,precision=bf16", "mine"]
    assert [each.precision for each in found.values()] == ["fp32", "bf16", "fp32"]
    assert {each.train.lr for each in found.values()} == {0.5}


def test_a_comma_within_a_value_does_not_separate_changes() -> None:
    found = bench.candidates(["ddp,train.lr=0.2,description=quick, or so"], {})
    (config,) = found.values()
    assert (config.train.lr, config.description) == (0.2, "quick, or so")


def test_the_shell_command_of_a_definition() -> None:
    """One definition with the default rules, and one with changed rules."""
    configs = bench.candidates(["single", "ddp,precision=bf16"], {})
    assert shell_command(bench.make(configs, {})) == [
        "distrain",
        "bench",
        "single",
        "ddp,precision=bf16",
    ]
    rules = {"repeats": 9, "precision": 0.01, "baseline": "ddp,precision=bf16", "unequal": True}
    text = " ".join(shell_command(bench.make(configs, rules))[4:])
    assert text == "--repeats 9 --precision 0.01 --baseline ddp,precision=bf16 --unequal"


def test_with_a_target_evaluation_intervals_must_be_equal() -> None:
    often = config(eval__every_epochs=1)
    configs = {"often": often, "seldom": config(eval__every_epochs=5)}
    assert set(bench.plans(definition(configs))) == {"often", "seldom"}
    to_target = bench.make(configs, {}, Target(metric="top1", value=0.9))
    assert problems(to_target)["eval.every_epochs"] == "1 in often, 5 in seldom"


def test_with_a_target_each_round_has_its_own_seed_for_all_candidates() -> None:
    """With one seed in all rounds, the result would depend on how lucky that seed is."""
    target = Target(metric="top1", value=0.9)
    assert [config_for_round(config(), target, number).train.seed for number in (1, 2, 3)] == [
        0,
        1,
        2,
    ]
    assert config_for_round(config(), None, 3).train.seed == 0


def test_a_candidate_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="ddp is given twice"):
        bench.candidates(["ddp", "ddp"], {})


def test_configs_of_several_hosts_are_refused() -> None:
    defined = bench.make(bench.candidates(["ddp"], {"dist.nodes": 2, "devices": "cpu:1"}), {})
    assert problems(defined) == {
        "ddp: dist.nodes": "hosts join a single run, not those of a bench or check"
    }


def test_a_baseline_that_is_not_a_candidate_is_refused() -> None:
    with pytest.raises(ConfigError, match="'dpp' is not a candidate; did you mean ddp"):
        definition({"ddp": config()}, baseline="dpp")


def test_the_name_of_a_candidate_cannot_control_a_terminal() -> None:
    text = definition({"ddp": config()}).to_toml()
    text = text.replace("[candidates.ddp", '[candidates."\\u001b[2J"')
    with pytest.raises(ConfigError, match=r"must be printable text, not '\\x1b\[2J'"):
        Definition.from_toml(text)


def test_a_file_with_the_old_name_of_the_candidates_table_is_read() -> None:
    defined = definition({"ddp": config()})
    older = defined.to_toml().replace("[candidates.", "[contestants.")
    assert "[contestants.ddp]" in older
    assert Definition.from_toml(older) == defined


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    text = "[bench]\nrepeats = 0\n[target]\nmetric = 3\nvalue = 1\n[candidates.ddp]\nlauncer = 1"
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    keys = [key for key, _ in caught.value.problems]
    assert keys == ["bench.repeats", "target.metric", "candidates.ddp.launcer"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[candidates]\nx = 1", "candidates.x"),
        ("target = 3\n[candidates.a]", "target"),
        ("[target]\nmetric = 'top1'\nvalue = nan\n[candidates.a]", "target.value"),
    ],
)
def test_a_wrong_type_is_reported_with_its_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    assert [wrong for wrong, _ in caught.value.problems] == [key]


def test_an_unreachable_target_is_refused() -> None:
    for target in (Target(metric="top1", value=float("nan")), Target(metric="", value=1.0)):
        with pytest.raises(ConfigError, match="target"):
            bench.make({"a": config()}, {}, target)


def test_a_share_whose_percent_sign_was_forgotten_is_refused_before_the_start() -> None:
    made = bench.make({"a": config()}, {}, Target(metric="top1", value=95.0))
    assert Definition.from_toml(made.to_toml()) == made  # a bench of an older version is read
    assert problems(made) == {"target.value": "top1 is at most 1; write 95% or 0.95"}


def test_the_metric_of_a_task_of_the_users_own_may_be_in_percent(folder: Path) -> None:
    (folder / "own.py").write_text("def make() -> None: ...\n")
    target = Target(metric="accuracy", value=95.0)
    made = bench.make({"a": config(task__name="own:make")}, {}, target)
    assert list(bench.plans(made, str(folder))) == ["a"]


def test_strategy_launcher_and_precision_may_differ() -> None:
    defined = bench.make(bench.candidates(["single", "dp", "allreduce", "ddp", "amp"], {}), {})
    plans = bench.plans(defined)
    equal, differences = compare_settings(list(defined.configs.values()), list(plans.values()))
    assert equal["global batch"] == "128"
    assert {each.key for each in differences} >= {"strategy", "launcher", "precision", "ranks"}
    assert all(each.fair for each in differences)


def test_the_learning_rate_may_differ() -> None:
    bench.plans(definition({"one": config(), "two": config(train__lr=0.5)}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train__batch_size", 64),
        ("data__workers", 2),
        ("data__train_limit", 100),
        ("model__name", "cnn"),
        ("train__seed", 1),
        ("train__optimizer", "adam"),
        ("train__compile", True),
    ],
)
def test_other_differences_make_it_unequal(key: str, value: object) -> None:
    defined = definition({"one": config(), "other": config(**{key: value})})
    text = problems(defined)
    assert "the comparison would be unequal" in text[""]
    assert f"{value}".lower() in text[key.replace("__", ".")].lower()


def test_a_key_that_one_candidate_does_not_set_is_reported_as_unset() -> None:
    defined = definition({"one": config(), "two": config(train__clip_norm=1.0)})
    assert problems(defined)["train.clip_norm"] == "unset in one, 1.0 in two"


def test_threads_are_compared_in_total() -> None:
    """Two ranks of one thread count as much as one rank of two threads."""
    two = {"strategy": "ddp", "launcher": "spawn", "devices": "cpu:2", "train__threads": 1}
    bench.plans(definition({"one": config(train__threads=2), "two": config(**two)}))
    defined = definition({"one": config(train__threads=1), "two": config(**two)})
    assert problems(defined)["threads in total"] == "1 in one, 2 in two"


def test_unequal_candidates_can_be_allowed() -> None:
    bench.plans(definition({"one": config(), "two": config(train__batch_size=64)}, unequal=True))


def test_problems_are_reported_for_each_candidate() -> None:
    defined = definition({"one": config(dist__backend="nccl"), "two": config(precision="tf32")})
    assert set(problems(defined)) == {"one: dist.backend", "two: precision"}


def test_a_loss_is_reached_from_above_and_a_share_from_below() -> None:
    assert Target(metric="loss", value=0.1).is_reached_by(0.05, None)
    assert Target(metric="top1", value=0.9).is_reached_by(0.95, None)
    assert not Target(metric="top1", value=0.9).is_reached_by(None, None)


def test_a_target_is_reached_from_the_side_that_config_or_task_call_better() -> None:
    target = Target(metric="mae", value=0.1)
    chosen = structs.replace(FACTS, best="mae", best_is="min")
    other = structs.replace(FACTS, best="top1", best_is="min")
    assert [target.is_reached_by(each, chosen) for each in (0.5, 0.05)] == [False, True]
    assert [target.is_reached_by(each, other) for each in (0.5, 0.05)] == [True, False]


@pytest.mark.parametrize("metric", ["perplexity", "bits_per_byte", "val_loss"])
def test_what_follows_from_a_loss_is_reached_from_above_too(metric: str) -> None:
    target = Target(metric=metric, value=10.0)
    assert target.is_reached_by(9.0, None)
    assert not target.is_reached_by(250.0, None)


@pytest.mark.parametrize(
    ("metric", "value", "key"),
    [(r"\u001b[31m", 1.0, "target.metric"), ("f1", 1e308, "target.value")],
)
def test_a_target_can_be_printed(metric: str, value: float, key: str) -> None:
    text = f'[target]\nmetric = "{metric}"\nvalue = {value}\n[candidates.a]\n'
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    assert [name for name, _ in caught.value.problems] == [key]
