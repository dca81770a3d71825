"""Given presets, when they are listed, shown, saved and checked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

from distrain.runners.config.schema import parse_devices as devices

from .conftest import Distrain, SampledRun


def test_the_list_names_built_in_presets(distrain: Distrain) -> None:
    listed = distrain("presets")
    assert listed.stdout == distrain("presets", "list").stdout
    names = {line.split()[0] for line in listed.stdout.splitlines()[1:]}
    assert {"single", "dp", "allreduce", "ddp", "ddp-spawn", "amp"} <= names
    as_json = json.loads(distrain("presets", "list", "--json").stdout)
    assert {preset["name"] for preset in as_json} == names
    assert as_json == json.loads(distrain("presets", "--json").stdout)


def test_a_preset_that_is_shown_controls_no_terminal(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "theirs.toml").write_text('description = "\x9b2J\u202e"\n# \x9b2J\n')
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "distrain", "presets", "show", "./theirs.toml"]
    subprocess.run(words, env=environment, cwd=tmp_path, stdout=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 1000).decode() == 'description = "·2J·"\r\n# ·2J\r\n'
    os.close(ours)


def test_show_prints_toml_and_full_adds_the_defaults(distrain: Distrain) -> None:
    shown = tomllib.loads(distrain("presets", "show", "ddp").stdout)
    full = tomllib.loads(distrain("presets", "show", "ddp", "--full").stdout)
    assert shown["strategy"] == full["strategy"] == "ddp"
    assert "ddp" not in shown
    assert full["ddp"]["bucket_mb"] == 25.0


def test_save_takes_a_preset_or_a_run_with_changes(
    distrain: Distrain, finished: SampledRun
) -> None:
    saved = distrain("presets", "save", "mine", "--from", "ddp", "--set", "train.lr=0.05")
    assert tomllib.loads(Path(saved.stdout.strip()).read_text())["train"]["lr"] == 0.05
    again = distrain("presets", "save", "mine", "--from", "first")
    assert again.returncode == 2
    assert "--force replaces it" in again.stderr
    assert distrain("presets", "save", "mine", "--from", "first", "--force").returncode == 0
    assert tomllib.loads(distrain("presets", "show", "mine").stdout)["train"]["epochs"] == 4
    assert distrain("presets", "path", "mine").stdout == saved.stdout
    assert "did you mean" in distrain("presets", "save", "x", "--from", "ddpp").stderr


def test_a_saved_preset_names_its_source_or_keeps_its_description(
    distrain: Distrain, finished: SampledRun
) -> None:
    def described(*arguments: str) -> str:
        saved = distrain("presets", "save", *arguments, "--force")
        return str(tomllib.loads(Path(saved.stdout.strip()).read_text())["description"])

    change = ("--set", "train.lr=0.05")
    assert described("mine", "--from", "ddp", *change) == "ddp with train.lr 0.05"
    assert described("mine", "--from", "mine", "--set", "description=my words") == "my words"
    assert described("mine", "--from", "mine", "--set", "train.lr=0.07") == "my words"
    of_run = described("again", "--from", "latest", *change)
    assert of_run == f"run {finished.id} with train.lr 0.05"


def test_validate_distinguishes_invalid_from_not_usable_here(
    distrain: Distrain, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("[train]\nepochs = -1\nlrr = 1\n")
    (tmp_path / "far.toml").write_text('[data]\nname = "imagefolder"\nroot = "nowhere"\n')
    done = distrain("presets", "validate", "ddp", "bad.toml", "far.toml")
    assert done.returncode == 2
    assert done.stdout == "ddp: valid\nfar.toml: valid, cannot run here\n"
    for text in ("train.epochs", "train.lrr", "data.root"):
        assert text in done.stderr
    assert distrain("presets", "validate").returncode == 0


def test_the_schema_accepts_the_presets(distrain: Distrain) -> None:
    schema = json.loads(distrain("schema").stdout)
    jsonschema.validate(tomllib.loads(distrain("presets", "show", "amp").stdout), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"strategy": "dpp"}, schema)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("auto", "auto"),
        ("all", "all"),
        ("cpu:4", "cpu:4"),
        ("0", [0]),
        ("0, 1", [0, 1]),
        ("GPU-1a,GPU-2b", ["GPU-1a", "GPU-2b"]),
        ("1,GPU-2b", [1, "GPU-2b"]),
    ],
)
def test_devices_are_parsed(typed: str, meant: object) -> None:
    assert devices(typed) == meant
