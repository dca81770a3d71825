"""Presets: built-in ones by name, the user's own, and files by path."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from distrain.runners.checks import check
from distrain.runners.config.field_types import ONE_PROCESS, STRATEGIES, Launcher
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import (
    BUILT_IN,
    describe,
    find,
    listing,
    load_preset,
    locate,
    names,
    save_preset,
    user_folder,
)
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.trust import is_remembered, remember
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device
from tests.support import ROOT

DIGITS = [
    "single",
    "dp",
    "allreduce",
    "ddp",
    "ddp-spawn",
    "amp",
    "horovod",
    "horovod-fp16",
    "horovod-amp",
    "slurm",
]
OTHERS = ["gpt", "mnist-ddp", "cifar10-amp", "imagenet-resnet50-amp"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "presets"


def own(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


# --- the built-in ones -------------------------------------------------------------------------


def test_there_are_presets_for_every_strategy_and_launcher() -> None:
    assert names() == sorted(DIGITS + OTHERS)
    configs = [load_preset(name) for name in names()]
    assert {config.strategy for config in configs} == set(STRATEGIES)
    # A scheduler starts the ranks of env.
    assert {config.launcher for config in configs} == set(get_args(Launcher)) - {"env"}


@pytest.mark.parametrize("name", DIGITS)
def test_digits_presets_differ_only_in_how_they_run(name: str) -> None:
    config, reference = load_preset(name), load_preset("ddp")
    assert config.data.name == "digits"
    assert (config.train, config.model, config.data) == (
        reference.train,
        reference.model,
        reference.data,
    )


@pytest.mark.parametrize("name", DIGITS + OTHERS)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_built_in_preset_has_a_plan(name: str, kind: str) -> None:
    config = load_preset(name)
    count = 1 if config.strategy in ONE_PROCESS else 2
    devices = [Device(kind=kind, index=i, uuid=f"GPU-{i}") for i in range(count)]  # type: ignore[arg-type]
    plan = plan_here(config, devices)
    if "amp" in name:
        assert plan.precision == ("fp16" if kind == "cuda" else "bf16")
    assert config.description


def test_the_imagenet_preset_is_the_usual_recipe() -> None:
    config = load_preset("imagenet-resnet50-amp")
    train = config.train
    assert (train.epochs, train.batch_size, train.lr, train.momentum) == (90, 256, 0.1, 0.9)
    assert (train.schedule, train.step_epochs, train.step_gamma) == ("step", 30, 0.1)
    assert (train.weight_decay, train.channels_last) == (1e-4, True)
    assert (config.model.name, config.data.name) == ("resnet50", "imagefolder")


def test_the_folder_of_presets_contains_only_presets() -> None:
    assert {path.suffix for path in BUILT_IN.iterdir() if path.name != "__pycache__"} == {
        ".toml",
        ".py",
    }


# --- by name and by path -----------------------------------------------------------------------


def test_a_preset_has_its_source(own_folder: Path, tmp_path: Path) -> None:
    own(own_folder, "mine", 'strategy = "dp"')
    file = own(tmp_path, "elsewhere", '\ufeffstrategy = "single"')  # as Windows writes it
    assert find("ddp")[1] == "built-in"
    assert find("mine") == (RunConfig(strategy="dp", code_dir=str(own_folder)), "yours")
    assert find(file) == (RunConfig(strategy="single", code_dir=str(tmp_path)), str(file))
    assert locate("ddp")[0] == BUILT_IN / "ddp.toml"


def test_a_users_preset_overrides_the_built_in_one_with_a_note(own_folder: Path) -> None:
    own(own_folder, "ddp", "[train]\nepochs = 1")
    config, origin = find("ddp")
    assert config.train.epochs == 1
    assert origin == "yours, hiding the built-in one"
    [listed] = [preset for preset in listing() if preset.name == "ddp"]
    assert (listed.origin, listed.hides_built_in) == ("yours", True)


def test_a_relative_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own(tmp_path, "ddp", "[train]\nepochs = 2")
    assert load_preset("ddp.toml").train.epochs == 2
    assert load_preset("./ddp.toml").train.epochs == 2
    assert load_preset("ddp").train.epochs != 2


def test_modules_are_next_to_a_preset_unless_it_names_a_folder(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own(tmp_path, "mine", "")
    own(tmp_path, "other", 'code_dir = "../src"')
    own(tmp_path, "absolute", 'code_dir = "/proj/src"')
    assert load_preset("mine.toml").code_dir == str(tmp_path)
    assert load_preset("other.toml").code_dir == str(tmp_path.parent / "src")
    assert load_preset("absolute.toml").code_dir == "/proj/src"
    assert load_preset("ddp").code_dir is None
    assert load_preset(BUILT_IN / "ddp.toml").code_dir is None


def test_the_folder_of_the_modules_is_saved_unless_it_contains_the_preset(
    own_folder: Path, tmp_path: Path
) -> None:
    save_preset("near", load_preset(save_preset("first", RunConfig())))
    assert (own_folder / "near.toml").read_text() == ""
    save_preset("far", load_preset(own(tmp_path, "mine", "")))
    assert load_preset("far").code_dir == str(tmp_path)


def test_overrides_change_dotted_keys() -> None:
    config = load_preset("ddp", {"train.epochs": 3, "devices": "cpu:4"})
    assert (config.train.epochs, config.devices) == (3, "cpu:4")
    assert config.train.lr == load_preset("ddp").train.lr
    with pytest.raises(ConfigError) as caught:
        load_preset("ddp", {"train.epochs": -3, "device": "cpu"})
    assert {key for key, _ in caught.value.problems} == {"train.epochs", "device"}


def test_an_unknown_preset_is_reported_with_the_nearest_names(own_folder: Path) -> None:
    own(own_folder, "ddp-mine", "")
    with pytest.raises(ConfigError, match=r"no preset 'ddp-mien'; did you mean .*ddp-mine"):
        load_preset("ddp-mien")


@pytest.mark.parametrize("path", ["nothing.toml", "./nothing", "no/such/folder.toml"])
def test_a_missing_file_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no preset file .*(nothing|folder)"):
        load_preset(path)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "x" * 5000])
@pytest.mark.parametrize(
    ("key", "others"),
    [
        ("script.path", {}),
        ("script.cwd", {"script.path": "train.py"}),
        ("code_dir", {"script.path": "./train"}),
        ("data.root", {"data.name": "mnist"}),
        ("checkpoint.load", {}),
    ],
)
def test_a_path_that_cannot_exist_is_named(path: str, key: str, others: dict[str, str]) -> None:
    changes = {key: path, "devices": "cpu:1", **others}
    if "script" in str(changes):
        script = {"script": {"path": "train.py"}}
        config = RunConfig.from_dict(script).with_changes(changes)
    else:
        config = RunConfig().with_changes(changes)
    with pytest.raises(ConfigError) as raised:
        check(config)
    assert path[:800] in str(raised.value)


def test_a_user_without_a_home_is_told_to_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "DISTRAIN_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as in a container
    with pytest.raises(ConfigError, match=r"set \$HOME"):
        find("ddp")
    config = RunConfig.from_dict({"script": {"path": "train.py"}})
    assert not is_remembered(config)
    remember(config)
    assert is_remembered(config), "by this process"


def test_an_invalid_file_is_named_with_every_key(tmp_path: Path) -> None:
    path = own(tmp_path, "bad", 'strategy = "dpp"\n[train]\nlr = -1\nepoch = 2')
    with pytest.raises(ConfigError) as caught:
        load_preset(path)
    assert str(path) in str(caught.value).splitlines()[0]
    assert {key for key, _ in caught.value.problems} == {"", "strategy", "train.lr", "train.epoch"}


@pytest.mark.parametrize("content", [b"strategy =", b"\xff\xfe"])
def test_a_file_that_is_not_a_preset_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        load_preset(path)


def test_a_folder_is_not_a_preset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_preset(f"{tmp_path}/")


def test_an_invalid_preset_of_the_user_is_listed_with_its_problem(own_folder: Path) -> None:
    own(own_folder, "broken", "[train]\nlr = 0")
    [listed] = [preset for preset in listing() if preset.name == "broken"]
    assert listed.config is None
    assert "train.lr" in listed.problem
    assert [preset.name for preset in listing()] == names()


# --- saving ------------------------------------------------------------------------------------


def test_a_pipe_in_the_folder_is_listed_with_its_problem(own_folder: Path) -> None:
    own_folder.mkdir(parents=True)
    os.mkfifo(own_folder / "pipe.toml")
    (pipe,) = [preset for preset in listing() if preset.name == "pipe"]
    assert "it is not a regular file" in pipe.problem


def test_of_writers_at_once_one_saves(own_folder: Path) -> None:
    def save(seed: int) -> int:
        try:
            save_preset("mine", RunConfig().with_changes({"train.seed": seed}))
        except ConfigError:
            return 0
        return seed

    with ThreadPoolExecutor(16) as pool:
        saved = [seed for seed in pool.map(save, range(1, 65)) if seed]
    assert saved == [load_preset("mine").train.seed]


def test_a_saved_preset_is_found_again(own_folder: Path) -> None:
    config = RunConfig().with_changes({"train.lr": 0.25, "devices": ["GPU-1", 2]})
    path = save_preset("mine", config)
    assert path == own_folder / "mine.toml"
    assert find("mine") == (structs.replace(config, code_dir=str(own_folder)), "yours")
    assert list(own_folder.iterdir()) == [path]


def test_only_differences_from_the_defaults_are_written(own_folder: Path) -> None:
    changes = {"train.lr": 0.25, "model.args": {"hidden": [8]}, "strategy": "dp"}
    path = save_preset("mine", RunConfig().with_changes(changes))
    wanted = {"strategy": "dp", "train": {"lr": 0.25}, "model": {"args": {"hidden": [8]}}}
    assert tomllib.loads(path.read_text()) == wanted


def test_a_preset_based_on_another_lists_its_changes() -> None:
    base = RunConfig(description="plain")
    config = base.with_changes({"train.lr": 0.25, "train.max_steps": 5})
    made = describe(config, "ddp", base)
    assert made.description == "ddp with train.lr 0.25, train.max_steps 5"
    assert describe(base, "ddp", base) == base
    moved = structs.replace(base, code_dir="/proj")
    assert describe(moved, "ddp", base) == moved
    own = config.with_changes({"description": "mine"})
    assert describe(own, "ddp", base) == own


def test_a_preset_is_replaced_only_with_force(own_folder: Path) -> None:
    save_preset("mine", RunConfig())
    with pytest.raises(ConfigError, match="--force replaces it and removes the comments"):
        save_preset("mine", RunConfig(strategy="dp"))
    assert load_preset("mine").strategy == "ddp"
    save_preset("mine", RunConfig(strategy="dp"), force=True)
    assert load_preset("mine").strategy == "dp"


def test_a_preset_that_is_replaced_stays_a_link_and_private(
    own_folder: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "mine.toml"
    kept.touch(0o600)
    own_folder.mkdir(parents=True)
    (own_folder / "mine.toml").symlink_to(kept)
    save_preset("mine", RunConfig.from_dict({"strategy": "dp"}), force=True)
    assert (own_folder / "mine.toml").is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert load_preset("mine").strategy == "dp"


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "mine.toml", "a b", "-x"])
def test_a_name_that_could_not_be_found_again_is_refused(name: str, own_folder: Path) -> None:
    with pytest.raises(ConfigError, match="cannot name a preset"):
        save_preset(name, RunConfig())
    assert not own_folder.exists()


def test_a_folder_that_cannot_be_written_is_reported(own_folder: Path) -> None:
    own_folder.parent.mkdir(parents=True)
    own_folder.write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_preset("mine", RunConfig())


def test_the_default_folder_is_the_users_config_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISTRAIN_CONFIG_DIR")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert user_folder() == tmp_path / "distrain" / "presets"


def test_a_folder_called_presets_in_the_current_folder_hides_nothing(tmp_path: Path) -> None:
    own(tmp_path / "presets", "ddp", 'strategy = "single"')
    (tmp_path / "presets" / "__init__.py").touch()
    code = "from distrain import load_preset; print(load_preset('ddp').strategy)"
    root = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "ddp"
