"""A config reports all problems at once, each with its key, and survives TOML unchanged."""

from __future__ import annotations

import tomllib
from datetime import date
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from distrain.runners.config.launch_sections import ScriptConfig
from distrain.runners.config.presets import BUILT_IN
from distrain.runners.config.schema import RunConfig, differences, json_schema, parse_assignment
from distrain.runners.config.validation import Section
from distrain.runners.errors import ConfigError

PRESETS = sorted(BUILT_IN.glob("*.toml"))
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)  # what TOML promises
SCALARS = st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Generate every value that a field of this type allows."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return configs_of(hint)
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        if pattern := next((meta.pattern for meta in metas if meta.pattern), None):
            return st.from_regex(pattern, fullmatch=True)
        return numbers_of(inner, metas) if inner in (int, float) else values_of(inner)
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) in (UnionType, Union):
        return st.one_of([values_of(kind) for kind in get_args(hint)])
    if get_origin(hint) is list:
        return st.lists(values_of(get_args(hint)[0]), max_size=4)
    if get_origin(hint) is dict:
        value = get_args(hint)[1]
        return st.dictionaries(st.text(), PLAIN if value is Any else values_of(value), max_size=3)
    kinds = {bool: st.booleans(), str: st.text(), int: st.integers(), type(None): st.none()}
    return kinds[hint]


def numbers_of(kind: type, metas: list[Any]) -> st.SearchStrategy[Any]:
    limits = {name: getattr(meta, name) for meta in metas for name in ("ge", "gt", "le", "lt")}
    low = limits["ge"] if limits["ge"] is not None else limits["gt"]
    high = limits["le"] if limits["le"] is not None else limits["lt"]
    if kind is int:
        return st.integers(min_value=low, max_value=high)
    return st.floats(
        min_value=low,
        max_value=high,
        exclude_min=limits["gt"] is not None,
        exclude_max=limits["lt"] is not None,
        allow_nan=False,
        allow_infinity=False,
    )


def configs_of(kind: type[Section]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values_of(hint) for name, hint in hints.items()})


TRAINING = configs_of(RunConfig).map(
    lambda config: structs.replace(
        config, strategy="ddp" if config.is_script else config.strategy, script=ScriptConfig()
    )
)
OWN_PROGRAM = st.builds(
    lambda config, script: structs.replace(
        RunConfig(),
        strategy="script",
        script=structs.replace(
            script,
            path="train.py",
            module=None,
            env={f"V{n}": text.replace("\0", "") for n, text in enumerate(script.env.values())},
        ),
        **{name: getattr(config, name) for name in ("devices", "launcher", "dist", "slurm")},
    ),
    configs_of(RunConfig),
    configs_of(ScriptConfig),
)


# --- round trips ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(TRAINING | OWN_PROGRAM)
def test_every_config_survives_toml(config: RunConfig) -> None:
    assert RunConfig.from_toml(config.to_toml()) == config
    assert RunConfig.from_dict(config.to_dict()) == config


def test_dates_of_toml_stay_dates() -> None:
    text = "[model]\nname = 'a:b'\nargs = { day = 2026-11-23, at = [2026-11-23T07:30:00Z] }"
    config = RunConfig.from_toml(text)
    assert config.model.args["day"] == date(2026, 11, 23)
    assert RunConfig.from_toml(config.to_toml()) == RunConfig.from_dict(config.to_dict()) == config


@settings(max_examples=25, deadline=None)
@given(TRAINING | OWN_PROGRAM)
def test_the_schema_accepts_every_config(config: RunConfig) -> None:
    jsonschema.validate(config.to_dict(), json_schema())


@pytest.mark.parametrize(
    ("devices", "launcher"),
    [("", "inline"), ('devices = "auto"', "inline"), ("devices = [0]", "torchrun")],
)
def test_a_script_is_one_process_unless_devices_are_named(devices: str, launcher: str) -> None:
    config = RunConfig.from_toml(f'{devices}\n[script]\npath = "train.py"\n')
    assert (config.strategy, config.launcher) == ("script", launcher)
    assert RunConfig.from_toml(config.to_toml(whole=False)) == config
    assert config.with_changes({"devices": "cpu:2"}).launcher == "torchrun"
    one = config.with_changes({"launcher": "inline", "devices": [0]})
    assert one.with_changes({"devices": [1]}).launcher == "inline"


def test_the_default_is_a_config() -> None:
    assert RunConfig.from_toml("") == RunConfig()


# --- problems -----------------------------------------------------------------------------


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_toml(text)
    assert len(dict(caught.value.problems)) == len(caught.value.problems)
    return dict(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "key", "sentence"),
    [
        ('strategy = "script"', "script", "name one program"),
        ('[script]\nargs = ["x"]', "script", "name one program"),
        ("[script]", "script", "name one program"),
        ('[script]\npath = "a.py"\nenv = { RANK = "1" }', "script.env.RANK", "by the launcher"),
        ('[script]\npath = "a.py"\nenv = { "A=B" = "1" }', "script.env.A=B", "no variable"),
        ('[script]\npath = "a.py"\nmodule = "b"', "script", "name one program"),
        ('strategy = "ddp"\n[script]\npath = "a.py"', "strategy", "leave strategy out"),
        (
            '[script]\npath = "a.py"\n[train]\nlr = 1\n[model]\nname = "cnn"',
            "model",
            "leave out model, train",
        ),
        ("script = 3", "script", "must be a table"),
        ('[script]\nmodule = "no-module"', "script.module", "must be the name of a module"),
    ],
)
def test_what_a_script_cannot_be_combined_with(text: str, key: str, sentence: str) -> None:
    problems = problems_of(text)
    assert list(problems) == [key]
    assert sentence in problems[key]


def test_all_problems_are_reported_at_once_each_with_its_key() -> None:
    problems = problems_of("""
        stratgy = "ddp"
        launcher = "torchrnu"
        devices = 2
        [train]
        batch_size = 0
        lr = "fast"
        momentum = 1.0
        epoch = 3
        deterministic = 1
        [ddp]
        comm_hook = "fp16"
        [checkpoint]
        keep = -1
        [data]
        workers = 1.5
    """)
    assert set(problems) == {
        "stratgy",
        "launcher",
        "devices",
        "train.batch_size",
        "train.lr",
        "train.momentum",
        "train.epoch",
        "train.deterministic",
        "ddp.comm_hook",
        "checkpoint.keep",
        "data.workers",
    }
    assert problems["train.batch_size"] == "must be a whole number ≥ 1, not 0"
    assert problems["train.lr"] == "must be a number > 0, not 'fast'"
    assert problems["train.momentum"] == "must be a number ≥ 0 and < 1, not 1.0"
    assert problems["train.deterministic"] == "must be true or false, not 1"
    assert "cpu:N" in problems["devices"]


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ('stratgy = "ddp"', "stratgy", "strategy"),
        ('strategy = "dpp"', "strategy", "ddp"),
        ('launcher = "torchrnu"', "launcher", "torchrun"),
        ('precision = "fp61"', "precision", "fp16"),
        ("[train]\nbatchsize = 1", "train.batchsize", "batch_size"),
        ('[dist]\nbackend = "ncl"', "dist.backend", "nccl"),
        ("[trian]\nlr = 1", "trian", "train"),
    ],
)
def test_unknown_names_are_reported_with_the_nearest_ones(text: str, key: str, near: str) -> None:
    problem = problems_of(text)[key]
    assert problem.startswith("unknown")
    assert "did you mean" in problem
    assert near in problem


def test_a_key_in_quotes_is_not_one_of_a_section() -> None:
    assert problems_of('"train.lr" = 0.1')["train.lr"].startswith("unknown key")


@pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
@pytest.mark.parametrize("key", ["train.lr", "train.weight_decay", "dist.timeout_s"])
def test_a_number_must_be_finite(key: str, value: str) -> None:
    table, _, name = key.partition(".")
    assert list(problems_of(f"[{table}]\n{name} = {value}")) == [key]


@pytest.mark.parametrize(
    ("typed", "limit"),
    [
        ("1", 1),
        ("90:00", "90:00"),
        ("1:30:00", "1:30:00"),
        ("01:30:00", "01:30:00"),  # a time of day in TOML
        ("2-12", "2-12"),
        ("2-12:30:00", "2-12:30:00"),
        ("UNLIMITED", "UNLIMITED"),
    ],
)
def test_a_time_limit_is_minutes_or_as_slurm_writes_it(typed: str, limit: str | int) -> None:
    key, value = parse_assignment(f"slurm.time={typed}")
    assert RunConfig().with_changes({key: value}).slurm.time == limit


@pytest.mark.parametrize("wrong", ['"1h"', "-1", "1.5", "true", '""', '"1-2-3"', '"1:2:3:4"'])
def test_an_invalid_time_limit_is_reported_with_the_valid_forms(wrong: str) -> None:
    told = problems_of(f"[slurm]\ntime = {wrong}")["slurm.time"]
    forms = "minutes, MM:SS, H:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED"
    assert told.startswith(f"must be {forms}, not ")


def test_text_that_is_not_toml_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"not TOML.*line 2"):
        RunConfig.from_toml('strategy = "ddp"\ndevices = auto\n')


@pytest.mark.parametrize(
    "text",
    ["a." * 100_000 + "a = 1", "[" + '"a" . ' * 100_000 + "a]"],
    ids=["bare", "quoted"],
)
def test_a_key_that_would_take_minutes_to_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="its dotted keys have too many parts"):
        RunConfig.from_toml(text)


def test_a_table_is_not_a_value() -> None:
    assert problems_of("train = 3") == {"train": "must be a table, not 3"}


# --- changes -----------------------------------------------------------------------------------


def test_changes_apply_inside_tables_and_keep_the_rest() -> None:
    changed = RunConfig().with_changes(
        {"train.lr": 0.5, "model.args.hidden": [8], "devices": "all"}
    )
    assert (changed.train.lr, changed.model.args, changed.devices) == (0.5, {"hidden": [8]}, "all")
    assert set(differences(RunConfig(), changed)) == {"train.lr", "model.args.hidden", "devices"}
    again = changed.with_changes({"train": {"epochs": 3}, "model.args": {"width": 2}})
    assert (again.train.lr, again.train.epochs, again.model.args) == (0.5, 3, {"width": 2})


def test_all_wrong_changes_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig().with_changes({"train.lr": -1, "train.rate": 1, "ddp.bucket_mb": "big"})
    assert {key for key, _ in caught.value.problems} == {"train.lr", "train.rate", "ddp.bucket_mb"}
    with pytest.raises(ConfigError, match=r"strategy is not a table"):
        RunConfig().with_changes({"strategy.name": "ddp"})


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("train.lr=0.05", "train.lr", 0.05),
        ("devices=[0, 1]", "devices", [0, 1]),
        ("devices=cpu:4", "devices", "cpu:4"),
        ('model.name="cnn"', "model.name", "cnn"),
        ("data.download=true", "data.download", True),
        ("description=a = b", "description", "a = b"),
        ("description=1\nother = 2", "description", "1\nother = 2"),
    ],
)
def test_an_assignment_is_parsed_as_toml_if_possible(text: str, key: str, value: Any) -> None:
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize("text", ["train.lr", "=3", ""])
def test_an_assignment_has_a_key_and_a_value(text: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_assignment(text)


def test_differences_show_both_values() -> None:
    changed = RunConfig().with_changes({"train.max_steps": 5})
    assert differences(RunConfig(), changed) == {"train.max_steps": (None, 5)}
    assert differences(changed, changed) == {}


# --- the schema --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_the_schema_accepts_the_built_in_presets(path: Any) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(tomllib.loads(path.read_text()), schema)


@pytest.mark.parametrize(
    "data",
    [
        {"stratgy": "ddp"},
        {"train": {"learning_rate": 0.1}},
        {"strategy": "dpp"},
        {"train": {"lr": 0}},
        {"train": {"batch_size": 1.5}},
        {"devices": 2},
        {"strategy": "ddp\n"},
        {"model": {"name": "mlp\n"}},
        {"dist": {"interface": "lo\n"}},
        {"slurm": {"time": "10\n"}},
        {"script": {"module": "train\n"}},
    ],
)
def test_the_schema_rejects_what_a_config_rejects(data: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json_schema())
    with pytest.raises(ConfigError):
        RunConfig.from_dict(data)


def test_every_key_is_described() -> None:
    def undescribed(kind: type[Section], prefix: str) -> list[str]:
        missing = []
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if isinstance(hint, type) and issubclass(hint, Section):
                missing += undescribed(hint, f"{prefix}{name}.")
            elif not any(getattr(meta, "description", None) for meta in get_args(hint)[1:]):
                missing.append(prefix + name)
        return missing

    assert undescribed(RunConfig, "") == []


def test_an_argument_that_toml_cannot_store_is_a_problem() -> None:
    with pytest.raises(ConfigError, match=r"model\.args: contains a value that TOML cannot store"):
        RunConfig().with_changes({"model.args": {"layers": [object()]}})


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 3000 + "]" * 3000])
def test_an_extreme_value_is_reported_in_one_sentence(value: str) -> None:
    with pytest.raises(ConfigError, match=r"the value of train\.lr cannot be read"):
        parse_assignment(f"train.lr={value}")
    with pytest.raises(ConfigError, match="this is not a preset"):
        RunConfig.from_toml(f"[train]\nlr = {value}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[model.args]\n" + ".".join("a" * 3000) + " = 1", "is nested more than 16 levels deep"),
        (f"[model.args]\na = {2**63}", "contains a number of more than 64 bits"),
        ("[script]\npath = 'a'\n[script.env]\n" + ".".join("a" * 3000) + " = 1", "must be text"),
        ("[data]\nworkers = 1000000", "must be a whole number ≥ 0 and ≤ 100000, not 1000000"),
        ("[train]\nbatch_size = 1" + "0" * 400, "must be a whole number ≥ 1 and"),
        ("[report]\nwindow_s = 1e308", "must be a number > 0 and ≤ 10000000.0"),
        ('[model]\nname = "a\\u001b[2J"', "must be text, not"),
    ],
)
def test_values_that_would_overflow_later_are_refused(text: str, problem: str) -> None:
    found = "\n".join(problems_of(text).values())
    assert problem in found
    assert len(found) < 300
    assert "\x1b" not in found


def test_a_workload_names_a_users_task_unless_its_network_or_data_are_set() -> None:
    own = {"task.name": "line:Line"}
    assert RunConfig().workload == "mlp on digits"
    assert RunConfig().with_changes(own).workload == "line:Line"
    assert RunConfig().with_changes({**own, "model.name": "cnn"}).workload == "cnn on digits"
