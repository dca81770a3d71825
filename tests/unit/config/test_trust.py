"""Which configs of unknown origin execute code, and what the user has trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.config import trust
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import UntrustedError

FOREIGN: list[dict[str, Any]] = [
    {"strategy": "theirs:Strategy"},
    {"train": {"optimizer": "theirs:optimizer", "optimizer_args": {"lr": 1}}},
    {"task": {"name": "theirs:task"}},
    {"model": {"name": "theirs:model", "args": {"width": 3}}},
    {"data": {"name": "theirs:data"}},
    {"script": {"path": "train.py"}},
    {"script": {"path": "/bin/sh", "args": ["-c", "true"], "env": {"LD_PRELOAD": "./theirs.so"}}},
    {"script": {"module": "theirs"}},
    {"slurm": {"prologue": ["./theirs.sh"]}},
    {"slurm": {"extra": ["--export=LD_PRELOAD=./theirs.so"]}},
    {"dist": {"init_method": "tcp://theirs:1"}},
    {"dist": {"rendezvous": "theirs:1"}},
]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have trusted; nothing of a test is in the current folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_trusted_here", set())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def forget_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only what another process would know."""
    monkeypatch.setattr(trust, "_trusted_here", set())


@pytest.mark.parametrize("data", FOREIGN, ids=str)
def test_code_is_trusted_once_it_was_launched(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.from_dict(data)
    lines = trust.untrusted_code(config)
    assert any("theirs" in line or "train.py" in line for line in lines)
    trust.remember(config)
    forget_process(monkeypatch)
    read_back = RunConfig.from_toml(config.to_toml())
    assert trust.untrusted_code(read_back) == []


def test_a_config_of_what_distrain_contains_needs_no_trust() -> None:
    config = RunConfig().with_changes({"train.epochs": 3, "slurm.partition": "gpu"})
    assert trust.untrusted_code(config) == []


def test_a_folder_of_modules_is_code_also_of_a_built_in_task(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    moved = RunConfig(code_dir=str(theirs))
    assert trust.untrusted_code(moved)
    assert trust.untrusted_code(RunConfig(), cwd=str(theirs))
    assert trust.untrusted_code(RunConfig(code_dir=str(tmp_path / "absent"))), "it may come later"
    trust.remember(RunConfig(), str(theirs))
    assert trust.untrusted_code(RunConfig(), cwd=str(theirs)) == []


def test_what_is_trusted_are_names_and_arguments_in_their_folder(tmp_path: Path) -> None:
    script = RunConfig.from_dict({"script": {"path": "train.py", "args": ["--lr", "1"]}})
    (tmp_path / "train.py").write_text("print(1)")
    trust.remember(script, str(tmp_path))
    (tmp_path / "train.py").write_text("print(2)")
    assert trust.untrusted_code(script, str(tmp_path)) == [], "a user edits programs all the time"
    assert trust.untrusted_code(script), "in another folder it is another program"
    other = script.with_changes({"script.args": ["--exec", "x"]})
    assert trust.untrusted_code(other, str(tmp_path))
    same = script.with_changes({"devices": "cpu:2"})
    assert trust.untrusted_code(same, str(tmp_path)) == []


def test_a_job_is_that_of_a_run_which_was_launched_or_trusted_itself() -> None:
    trust.remember(RunConfig())
    assert not trust.is_remembered(RunConfig(), run_id="theirs"), "it only has the same config"
    trust.remember(RunConfig(), run_id="mine")
    assert trust.is_remembered(RunConfig(), run_id="mine")
    assert not trust.is_remembered(RunConfig(), run_id="theirs")


def test_only_a_folder_that_no_other_user_can_write_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = RunConfig.from_dict({"script": {"path": "train.py"}})
    trust.remember(config)
    forget_process(monkeypatch)
    assert trust.store().stat().st_mode & 0o777 == 0o700
    trust.store().chmod(0o770)
    assert trust.untrusted_code(config)
    trust.store().chmod(0o700)
    own = os.getuid()
    monkeypatch.setattr("distrain.runners.system.private_folder.os.getuid", lambda: own + 1)
    assert trust.untrusted_code(config)


def test_without_a_store_a_process_remembers_what_it_has_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").touch()  # no folder
    config = RunConfig.from_dict({"script": {"path": "train.py"}})
    trust.remember(config)
    assert trust.untrusted_code(config) == []
    forget_process(monkeypatch)
    assert trust.untrusted_code(config)


def test_what_is_shown_is_printable_and_short() -> None:
    variables = {f"V{number}": "\x1b[2J\u202e\x9b" + "x" * 10_000 for number in range(1000)}
    config = RunConfig.from_dict({"script": {"path": "train.py", "env": variables}})
    lines = trust.untrusted_code(config)
    assert all(line.isprintable() for line in lines)
    assert len("".join(lines)) < 20_000
    assert "more keys in its config.toml" in lines[-2]
    with pytest.raises(UntrustedError, match="Add --trust to allow this") as error:
        trust.require_trust("run \x1b]0;x", lines)
    assert "\x1b" not in str(error.value)
