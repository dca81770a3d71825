"""How the values of a sweep are written, which runs they give, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.config.command_line import program_config
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sweep import Axis, combine, parse_axis, varying_settings
from distrain.runners.errors import ConfigError


def accept(config: RunConfig) -> None:
    """Accept every config."""


def names(config: RunConfig, *sweeps: str) -> list[str]:
    return [run.name for run in combine(config, [parse_axis(each) for each in sweeps], accept)]


def problems(config: RunConfig, *sweeps: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        combine(config, [parse_axis(each) for each in sweeps], accept)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("train.lr=0.1,0.05, 1e-3", (0.1, 0.05, 1e-3)),
        ("strategy=single,ddp", ("single", "ddp")),
        ("train.scale_lr=true,false", (True, False)),
        ("model.args.hidden=[256],[256,128]", ([256], [256, 128])),
        ("description='a, b','c'", ("a, b", "c")),
        ("devices=cpu:1,cpu:2", ("cpu:1", "cpu:2")),
        ("devices=[0],[1]", ([0], [1])),
        ("--lr=0.1,0.20", ("0.1", "0.20")),
        ("--name='a, b',c", ("a, b", "c")),
    ],
)
def test_values_are_separated_by_commas(text: str, values: tuple[Any, ...]) -> None:
    axis = parse_axis(text)
    assert axis.values == values
    # and what the axis writes gives the same axis
    assert parse_axis(axis.assignment) == axis


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("train.lr", "takes KEY=VALUE,VALUE"),
        ("train.lr=0.1", "several values, separated by commas, not only 0.1"),
        ("train.lr=0.1,,0.2", "is empty"),
        ("train.lr=0.1,0.10", "0.10 is in the sweep twice"),
        ("devices=0,1", "may mean one run on several GPUs or several runs"),
        pytest.param("lr=" + "1," * 100 + "1", "has 101 runs; the most are 100", id="101 values"),
    ],
)
def test_what_is_ambiguous_or_no_sweep_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_axis(text)


@pytest.mark.parametrize("values", [0.1, "0.1,0.2", [], [0.1]])
def test_python_values_that_are_no_list_of_several_are_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match=r"a sweep takes (a list of|several) values"):
        Axis.of("train.lr", values)


def test_several_keys_give_all_combinations_with_a_name_each() -> None:
    axes = [parse_axis("train.lr=0.1,0.05"), Axis.of("train.batch_size", [64, 128])]
    runs = combine(RunConfig(), axes, accept)
    assert [(run.name, run.config.train.lr, run.config.train.batch_size) for run in runs] == [
        ("lr-0.1,batch_size-64", 0.1, 64),
        ("lr-0.1,batch_size-128", 0.1, 128),
        ("lr-0.05,batch_size-64", 0.05, 64),
        ("lr-0.05,batch_size-128", 0.05, 128),
    ]
    # keys with the same last part are written in full
    both = ("train.batch_size=1,2", "eval.batch_size=3,4")
    assert names(RunConfig(), *both)[0] == "train.batch_size-1,eval.batch_size-3"


def test_options_of_a_script_are_added_after_its_arguments() -> None:
    script = program_config(["train.py", "--epochs", "3"], {})
    axes = [parse_axis("--lr=0.1,0.2"), parse_axis("script.env.SEED='1','2'")]
    runs = combine(script, axes, accept)
    assert runs[1].name == "lr-0.1,SEED-2"
    assert runs[1].config.script.args == ["--epochs", "3", "--lr=0.1"]
    assert runs[1].config.script.env == {"SEED": "2"}
    # and only what differs is shown of them
    settings = varying_settings([run.config for run in runs])
    assert settings["script.args"] == ["--lr=0.1", "--lr=0.1", "--lr=0.2", "--lr=0.2"]


def test_all_problems_are_reported_at_once_with_their_runs() -> None:
    found = problems(RunConfig(), "train.lr=0.1,-1", "train.wrong=1,2")
    assert found == [
        ("train.wrong", "unknown key"),
        ("train.lr", "must be a number > 0, not -1 (in lr--1,wrong-1, lr--1,wrong-2)"),
    ]

    def fail(config: RunConfig) -> None:
        raise ConfigError([("data.root", "there is no file x")])

    with pytest.raises(ConfigError) as caught:
        combine(RunConfig(), [parse_axis("train.lr=0.1,0.2")], fail)
    assert caught.value.problems == [("data.root", "there is no file x")]


def test_a_key_of_the_wrong_kind_of_run_is_refused() -> None:
    script = program_config(["train.py"], {})
    assert problems(RunConfig(), "--lr=1,2")[0][1].startswith("only a script has arguments")
    assert "--sweep --lr=… passes it to the script" in problems(script, "lr=1,2")[0][1]
    assert problems(RunConfig(), "train.lr=1,2", "train.lr=3,4") == [
        ("train.lr", "is swept twice; write all its values into one --sweep")
    ]
    many = ",".join(map(str, range(1, 102)))
    assert "the sweep has 101 runs" in problems(RunConfig(), f"train.epochs={many}")[0][1]
