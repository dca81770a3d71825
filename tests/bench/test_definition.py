"""What a bench is to do: made of presets, kept as TOML, refused where it would be unequal."""

from pathlib import Path

import pytest
from benched import config, definition

from runners import bench
from runners.bench.definition import Definition, Target
from runners.bench.measuring import config_of
from runners.bench.wording import command
from runners.comparison.fairness import settings
from runners.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(made: Definition) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        bench.plans(made)
    return dict(caught.value.problems)


def test_a_definition_is_the_same_after_toml() -> None:
    made = bench.make(
        bench.contestants(["single", "ddp,precision=bf16"], {"train.lr": 0.2}),
        {"repeats": 9, "precision": 0.01, "baseline": "single"},
        Target(metric="top1", value=0.95),
    )
    assert Definition.from_toml(made.to_toml()) == made


def test_contestants_are_presets_files_and_either_with_keys_of_their_own(folder: Path) -> None:
    (folder / "mine.toml").write_text('strategy = "allreduce"\n')
    found = bench.contestants(["ddp", "ddp,precision=bf16", "./mine.toml"], {"train.lr": 0.5})
    assert list(found) == ["ddp", "ddp,precision=bf16", "mine"]
    assert [each.precision for each in found.values()] == ["fp32", "bf16", "fp32"]
    assert {each.train.lr for each in found.values()} == {0.5}


def test_a_comma_within_a_value_parts_nothing() -> None:
    found = bench.contestants(["ddp,train.lr=0.2,description=quick, or so"], {})
    (config,) = found.values()
    assert (config.train.lr, config.description) == (0.2, "quick, or so")


def test_what_a_bench_is_begun_with_in_a_shell() -> None:
    """A definition that was made by hand in the app, and one of which nothing was changed."""
    configs = bench.contestants(["single", "ddp,precision=bf16"], {})
    assert command(bench.make(configs, {})) == ["distrain", "bench", "single", "ddp,precision=bf16"]
    rules = {"repeats": 9, "precision": 0.01, "baseline": "ddp,precision=bf16", "unequal": True}
    told = " ".join(command(bench.make(configs, rules))[4:])
    assert told == "--repeats 9 --precision 0.01 --baseline ddp,precision=bf16 --unequal"


def test_on_the_way_to_a_target_evaluations_must_be_equal() -> None:
    often = config(eval__every_epochs=1)
    configs = {"often": often, "seldom": config(eval__every_epochs=5)}
    assert set(bench.plans(definition(configs))) == {"often", "seldom"}
    to_target = bench.make(configs, {}, Target(metric="top1", value=0.9))
    assert problems(to_target)["eval.every_epochs"] == "1 in often, 5 in seldom"


def test_each_round_to_a_target_has_its_own_seed_the_same_for_all() -> None:
    """One seed in all rounds would say how lucky it is, not how long training takes."""
    target = Target(metric="top1", value=0.9)
    assert [config_of(config(), target, number).train.seed for number in (1, 2, 3)] == [0, 1, 2]
    assert config_of(config(), None, 3).train.seed == 0


def test_a_contestant_is_there_once() -> None:
    with pytest.raises(ConfigError, match="ddp is there twice"):
        bench.contestants(["ddp", "ddp"], {})


def test_runs_that_hosts_would_have_to_join_are_refused() -> None:
    made = bench.make(bench.contestants(["ddp"], {"dist.nodes": 2, "devices": "cpu:1"}), {})
    assert problems(made) == {
        "ddp: dist.nodes": "hosts join a single run, not those of a bench or check"
    }


def test_a_baseline_is_one_of_the_contestants() -> None:
    with pytest.raises(ConfigError, match="'dpp' is no contestant; did you mean ddp"):
        definition({"ddp": config()}, baseline="dpp")


def test_every_problem_of_a_file_is_told_at_once() -> None:
    text = "[bench]\nrepeats = 0\n[target]\nmetric = 3\nvalue = 1\n[contestants.ddp]\nlauncer = 1"
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    keys = [key for key, _ in caught.value.problems]
    assert keys == ["bench.repeats", "target.metric", "contestants.ddp.launcer"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[contestants]\nx = 1", "contestants.x"),
        ("target = 3\n[contestants.a]", "target"),
        ("[target]\nmetric = 'top1'\nvalue = nan\n[contestants.a]", "target.value"),
    ],
)
def test_what_is_no_table_or_no_number_is_told_by_its_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Definition.from_toml(text)
    assert [wrong for wrong, _ in caught.value.problems] == [key]


def test_a_target_that_no_number_reaches_is_refused() -> None:
    for target in (Target(metric="top1", value=float("nan")), Target(metric="", value=1.0)):
        with pytest.raises(ConfigError, match="target"):
            bench.make({"a": config()}, {}, target)


def test_ways_of_training_may_differ() -> None:
    made = bench.make(bench.contestants(["single", "dp", "allreduce", "ddp", "amp"], {}), {})
    plans = bench.plans(made)
    equal, differences = settings(list(made.configs.values()), list(plans.values()))
    assert equal["global batch"] == "128"
    assert {each.key for each in differences} >= {"strategy", "launcher", "precision", "ranks"}
    assert all(each.fair for each in differences)


def test_a_rate_of_learning_makes_nobody_faster() -> None:
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
def test_what_else_differs_makes_it_unequal(key: str, value: object) -> None:
    made = definition({"one": config(), "other": config(**{key: value})})
    told = problems(made)
    assert "the comparison would be unequal" in told[""]
    assert f"{value}".lower() in told[key.replace("__", ".")].lower()


def test_threads_are_compared_in_total() -> None:
    """Two ranks of one thread are as much as one rank of two."""
    two = {"strategy": "ddp", "launcher": "spawn", "devices": "cpu:2", "train__threads": 1}
    bench.plans(definition({"one": config(train__threads=2), "two": config(**two)}))
    made = definition({"one": config(train__threads=1), "two": config(**two)})
    assert problems(made)["threads in total"] == "1 in one, 2 in two"


def test_an_unequal_one_can_be_asked_for() -> None:
    bench.plans(definition({"one": config(), "two": config(train__batch_size=64)}, unequal=True))


def test_what_cannot_run_here_is_told_for_each() -> None:
    made = definition({"one": config(dist__backend="nccl"), "two": config(precision="tf32")})
    assert set(problems(made)) == {"one: dist.backend", "two: precision"}


def test_a_loss_is_reached_from_above_and_a_share_from_below() -> None:
    assert Target(metric="loss", value=0.1).reached(0.05)
    assert Target(metric="top1", value=0.9).reached(0.95)
    assert not Target(metric="top1", value=0.9).reached(None)
