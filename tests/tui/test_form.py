"""The form as data: fields, typed values, and the command that does the same."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.models.datasets import digits, synthetic
from distrain.runners.cli.run import script_of_words
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import list_file, listing
from distrain.runners.config.schema import RunConfig, parse_assignment
from distrain.runners.config.schema import parse_devices as devices_option
from distrain.runners.config.training_sections import DataConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device
from distrain.tui.data import form, launch_preview
from distrain.tui.data.config_fields import (
    Field,
    complete,
    editable_text,
    fields,
    known_names,
    next_choice,
    parse_typed,
)
from distrain.tui.data.draft import Draft, find_problem
from distrain.tui.data.launch_preview import LaunchPreview, PastRun
from distrain.tui.data.preset_drafts import PresetDrafts
from distrain.tui.data.recent_scripts import as_preset
from distrain.tui.widgets.form_table import form_lines

CPUS = [Device(kind="cpu", index=index) for index in range(8)]


COMMON_OF_TRAINING = {key for key in form.COMMON if not key.startswith("script.")}


def field(key: str) -> Field:
    return next(field for field in fields() if field.key == key)


def a_draft(**changes: Any) -> Draft:
    draft = Draft.of("ddp", RunConfig())
    for key, value in changes.items():
        draft = draft.with_value(key.replace("__", "."), value)
    return draft


# --- fields ------------------------------------------------------------------------------------


def test_every_key_of_a_config_is_a_field_with_its_explanation() -> None:
    assert {field.key for field in fields()} >= {"strategy", "train.lr", "ddp.bucket_mb"}
    assert all(field.about for field in fields())


def test_fields_in_common_use_exist() -> None:
    assert {field.key for field in fields()} >= form.COMMON


@pytest.mark.parametrize(
    ("key", "kind", "optional"),
    [
        ("strategy", "choice", False),
        ("train.lr", "number", False),
        ("train.threads", "number", True),
        ("train.compile", "bool", False),
        ("data.root", "text", True),
        ("devices", "devices", False),
        ("model.args", "table", False),
    ],
)
def test_kinds_follow_from_the_annotations(key: str, kind: str, optional: bool) -> None:
    assert (field(key).kind, field(key).optional) == (kind, optional)


def test_choices_are_in_the_order_of_the_config() -> None:
    assert field("strategy").choices[:2] == ("single", "dp")
    assert next_choice(field("strategy"), field("strategy").choices[-1]) == "single"


# --- typing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.lr", "5e-4", 0.0005),
        ("train.lr", ".5", 0.5),
        ("train.epochs", " 3 ", 3),
        ("train.threads", "", None),
        ("data.root", "", None),
        ("data.root", "~/my data", "~/my data"),
        ("model.name", "0x10", "0x10"),
        ("devices", "0,1", [0, 1]),
        ("devices", "cpu:4", "cpu:4"),
        ("model.args", "{hidden = [256, 128]}", {"hidden": [256, 128]}),
        ("model.args", "", {}),
        ("train.compile", "True", True),
    ],
)
def test_typed_text_becomes_a_value(key: str, text: str, value: Any) -> None:
    assert parse_typed(field(key), text) == value
    assert find_problem(a_draft(), field(key), text) == ""


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("train.lr", "-3", "a number > 0"),
        ("train.lr", "nan", "a number"),
        ("train.lr", "fast", "a number > 0"),
        ("train.batch_size", "1.5", "a whole number ≥ 1"),
        ("train.batch_size", "", "a whole number ≥ 1"),
        ("model.args", "hidden", "a table"),
        ("train.compile", "maybe", "true or false"),
    ],
)
def test_invalid_text_is_refused_with_a_reason(key: str, text: str, complaint: str) -> None:
    assert complaint in find_problem(a_draft(), field(key), text)


def test_the_first_letters_of_a_value_complete_it() -> None:
    assert complete(field("strategy"), " Hor") == "horovod"
    assert complete(field("strategy"), "dp") == "dp", "not ddp"
    assert complete(field("strategy"), "x") == "x"
    assert complete(field("train.compile"), "f") == "false"
    assert complete(field("train.lr"), "0.1") == "0.1"


def test_each_value_of_a_sweep_is_completed_to_another_one() -> None:
    assert complete(field("launcher"), "spawn, Tor") == "spawn, torchrun"
    assert complete(field("launcher"), "spawn, s") == "spawn, slurm"
    assert complete(field("train.compile"), "true, f") == "true, false"
    assert complete(field("train.optimizer"), "sgd, s") == "sgd, s", "no other one begins so"


@pytest.mark.parametrize("value", [0.05, 3, "text", [0, "GPU-1"], {"a": [1, "x"]}, True])
def test_a_shown_value_can_be_typed_again(value: Any) -> None:
    kinds = {float: "train.lr", int: "train.epochs", str: "data.root", list: "devices"}
    key = kinds.get(type(value), "model.args" if isinstance(value, dict) else "train.compile")
    if key != "train.compile":
        assert parse_typed(field(key), editable_text(value)) == value


# --- drafts ------------------------------------------------------------------------------------


def test_a_draft_keeps_its_changes_and_can_reset_them() -> None:
    draft = a_draft(train__lr=0.05)
    assert [field.key for field in draft.changes] == ["train.lr"]
    assert draft.reset("train.lr").config == RunConfig()


def test_a_value_of_the_wrong_kind_never_enters_a_draft() -> None:
    with pytest.raises(ConfigError, match=r"train\.lr"):
        a_draft(train__lr=-1.0)


def test_the_command_contains_only_differences() -> None:
    draft = a_draft(train__lr=0.05, devices="cpu:4")
    assert shlex.join(draft.command()) == "distrain run ddp --devices cpu:4 --set train.lr=0.05"
    assert a_draft().command() == ["distrain", "run", "ddp"]


def test_the_command_is_quoted_for_a_shell() -> None:
    command = shlex.join(a_draft(data__root="my data", train__threads=None).command())
    assert command == "distrain run ddp --set 'data.root=my data'"


def test_the_command_names_a_runs_folder_that_is_not_the_default() -> None:
    assert a_draft().command(Path("/runs"))[-2:] == ["--runs-dir", "/runs"]


VALUES = st.one_of(
    st.tuples(st.just("train.lr"), st.floats(min_value=1e-9, max_value=1e9)),
    st.tuples(st.just("train.threads"), st.none() | st.integers(1, 64)),
    st.tuples(st.just("train.compile"), st.booleans()),
    st.tuples(st.just("data.root"), st.none() | st.text(max_size=20)),
    st.tuples(st.just("description"), st.text(max_size=20)),
    st.tuples(st.just("devices"), st.sampled_from(["cpu:3", "all", [0, 1], ["GPU-a", 1]])),
    st.tuples(
        st.just("model.args"),
        st.dictionaries(
            st.sampled_from(["a", "b", "a.b", "ü"]),
            st.integers(-(2**63) + 1, 2**63 - 1) | st.text(max_size=5) | st.just({"a": 1}),
        ),
    ),
)


@given(st.lists(VALUES, max_size=4))
def test_the_command_makes_the_same_config(values: list[tuple[str, Any]]) -> None:
    base = RunConfig.from_dict({"model": {"args": {"a": 1}}, "data": {"root": "x"}})
    draft = Draft.of("ddp", base)
    for key, value in values:
        draft = draft.with_value(key, value)
    words = shlex.split(shlex.join(draft.command()))[3:]
    changes = {}
    for option, text in zip(words[::2], words[1::2], strict=True):
        if option == "--set":
            key, value = parse_assignment(text)
            changes[key] = value
        else:
            changes["devices"] = devices_option(text)
    assert base.with_changes(changes) == draft.config
    assert Draft.of("ddp", base, draft.assignments) == draft


# --- visible fields ---------------------------------------------------------------------------


def keys(fields: list[Field]) -> set[str]:
    return {field.key for field in fields}


def test_slurm_runs_show_the_fields_of_slurm_first_and_no_devices() -> None:
    draft = a_draft().with_value("launcher", "slurm")
    shown = [field.key for field in form.visible_fields(draft, everything=False)]
    assert set(shown) == COMMON_OF_TRAINING - {"devices"} | form.COMMON_WITH_SLURM
    assert shown.index("slurm.nodes") < shown.index("train.epochs")
    wrong = draft.with_value("devices", [0])
    assert "devices" in keys(form.visible_fields(wrong, everything=False)), (
        "what is set can be unset"
    )


def test_before_the_first_layout_no_value_is_cut() -> None:
    draft = Draft.of("ddp", RunConfig(strategy="ddp"))
    shown = form_lines(draft, [field for field in fields() if field.key == "strategy"], {}, 0)
    assert shown[-1].text.plain == "  strategy ddp"


def test_a_list_of_texts_is_typed_as_toml() -> None:
    extra = field("slurm.extra")
    assert extra.kind == "list"
    assert parse_typed(extra, "") == []
    options = parse_typed(extra, '["--exclusive", "--gres=gpu:a,b"]')
    assert options == ["--exclusive", "--gres=gpu:a,b"]
    assert parse_typed(extra, editable_text(options, extra)) == options
    assert find_problem(a_draft(), extra, "--exclusive")


def test_fields_in_common_use_come_first() -> None:
    assert keys(form.visible_fields(a_draft(), everything=False)) == COMMON_OF_TRAINING
    shown = keys(form.visible_fields(a_draft(), everything=True))
    assert shown == {field.key for field in fields() if field.group != "script"}


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--lr", "0.1"],
        ["--devices", "cpu:2", "train.py"],
        ["--devices", "0,1", "--set", "launcher=inline", "train.py", "a b"],
        ["--set", "dist.max_restarts=2", "-m", "package.train"],
        ["--", "accelerate", "launch", "train.py"],
    ],
)
def test_the_command_of_a_script_is_the_one_that_was_typed(words: list[str]) -> None:
    config = script_of_words(words)
    draft = Draft.of("it", config, is_preset=False)
    assert draft.command() == ["distrain", "run", *words]
    assert script_of_words(draft.command(Path("r"))[2:]) == config
    changed = draft.with_value("devices", "cpu:3")
    assert changed.without_changes() == draft  # a script still, and not a preset of this name


@pytest.mark.parametrize("launcher", ["inline", "torchrun", "slurm"])
@pytest.mark.parametrize("base", [{}, {"devices": [0], "launcher": "torchrun"}])
def test_the_launcher_chosen_for_a_script_is_kept_with_its_devices(
    base: dict[str, Any], launcher: str
) -> None:
    config = RunConfig.from_dict({"script": {"path": "train.py"}, **base})
    draft = Draft.of("theirs", config)
    for key, value in (("launcher", "inline"), ("devices", [0, 1]), ("launcher", launcher)):
        draft = draft.with_value(key, value)
    assert Draft.of("theirs", config, draft.assignments) == draft
    assert config.with_changes(dict(map(parse_assignment, draft.assignments))) == draft.config


def test_marked_presets_of_one_name_are_candidates_of_their_own(tmp_path: Path) -> None:
    files = [tmp_path / name / "single.toml" for name in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("")
    drafts = PresetDrafts("single")
    drafts.update([*listing(), *map(list_file, files)])
    drafts.marked = ["ddp", "single", *map(str, files)]
    assert [*drafts.bench_configs] == drafts.marked
    drafts.marked = ["ddp", str(files[0])]
    assert [*drafts.bench_configs] == ["ddp", "single"]


def test_changes_to_a_script_stay_in_the_folder_that_it_was_added_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = as_preset(RunConfig.from_dict({"script": {"path": "train.py"}}))
    found = []
    for folder in ("one", "other", "one"):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        drafts = PresetDrafts("train.py")
        drafts.update([script])
        assert drafts.current is not None
        found.append(drafts.current.config.devices)
        drafts.keep(drafts.current.with_value("devices", f"cpu:{len(found)}"))
    assert found == ["auto", "auto", "cpu:1"]


def test_a_script_has_no_fields_of_the_training_loop() -> None:
    config = RunConfig.from_dict({"script": {"path": "train.py"}})
    shown = form.visible_fields(Draft.of("mine", config), everything=True)
    groups = {field.group for field in shown}
    assert {"script", "run", "dist", "slurm"} <= groups
    assert not groups & {"train", "model", "data", "ddp"}
    assert "precision" not in keys(shown)


def test_changed_and_invalid_fields_are_always_listed() -> None:
    draft = a_draft(ddp__bucket_mb=1.0)
    visible = form.visible_fields(draft, everything=False, with_problems={"dist.backend"})
    assert {"ddp.bucket_mb", "dist.backend"} <= keys(visible)


def test_a_filter_matches_words_of_names_and_explanations() -> None:
    found = keys(form.visible_fields(a_draft(), everything=False, words="warm-up"))
    assert "report.skip_steps" in found
    assert "strategy" not in found
    assert form.visible_fields(a_draft(), everything=True, words="nothing has this") == []


def test_existing_names_are_offered() -> None:
    names = [name for name, _ in known_names("model.name")]
    assert names[:2] == ["mlp", "cnn"]
    assert "resnet18" in names
    assert known_names("train.lr") == []


# --- the preview -------------------------------------------------------------------------------


def a_preview(ranks: int, samples: int | None = 1437, **changes: Any) -> LaunchPreview:
    config = a_draft(**changes).config
    return LaunchPreview(config=config, plan=plan_here(config, CPUS[:ranks]), samples=samples)


def test_sizes_of_training_sets_are_those_that_will_be_loaded() -> None:
    import torch

    assert launch_preview.training_samples(DataConfig(name="digits")) == len(digits().train)
    noise = synthetic(seed=0, device=torch.device("cpu"), shape=(1,), classes=2)
    assert launch_preview.training_samples(DataConfig(name="synthetic")) == len(noise.train)
    held = DataConfig(name="digits", args={"holdout": 0.5})
    assert launch_preview.training_samples(held) == len(digits(holdout=0.5).train)
    assert launch_preview.training_samples(DataConfig(name="mine:data")) is None


def test_an_uneven_batch_is_shown_exactly() -> None:
    figures = dict(launch_preview.figures(a_preview(3)))
    assert figures["batch"] == "43 on ranks 0–1, 42 on rank 2, 128 in total"
    assert figures["devices"] == "cpu:0–2"


def test_the_learning_rate_shows_whether_it_is_scaled() -> None:
    assert dict(launch_preview.figures(a_preview(2)))["lr"] == "0.1, not scaled"
    scaled = a_preview(2, train__scale_lr=True)
    assert dict(launch_preview.figures(scaled))["lr"] == "0.2 = 0.1 × 2"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "12 per epoch, 240 in total"),
        ({"train__drop_last": True}, "11 per epoch, 220 in total"),
        ({"train__max_steps": 5}, "12 per epoch, 5 in total, limited by max_steps"),
        ({"train__epochs": 0}, "none, evaluation only"),
    ],
)
def test_steps_are_counted(changes: dict[str, Any], text: str) -> None:
    assert dict(launch_preview.figures(a_preview(2, **changes)))["steps"] == text


def test_steps_of_unknown_data_are_shown_as_unknown() -> None:
    figures = dict(launch_preview.figures(a_preview(2, samples=None)))
    assert figures["steps"] == "unknown until the data is loaded"


def test_the_estimated_time_is_that_of_a_past_run_scaled_by_samples() -> None:
    past = PastRun("20260101-120000-ddp-x7k2", startup_s=4.0, training_s=10.0, samples=1437 * 10)
    preview = a_preview(2)._replace(past=past)  # 20 epochs, the run before had 10
    assert preview.seconds == pytest.approx(4 + 20)
    assert launch_preview.estimated_time(preview) == "~24.0 s (based on ddp-x7k2)"
    limited = a_preview(2, **{"train.epochs": 20, "train.max_time_s": 7.0})._replace(past=past)
    assert launch_preview.estimated_time(limited) == "~11.0 s (based on ddp-x7k2)"
    assert "no similar run" in launch_preview.estimated_time(a_preview(2))
