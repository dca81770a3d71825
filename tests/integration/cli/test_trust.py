"""Code of records that somebody else made: it is executed only once the user trusts it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain.runners.config.schema import RunConfig
from tests.support.benches import change, make_bench

from .conftest import Distrain, SampledRun

Fabricate = Callable[..., SampledRun]
PROGRAM = "open('executed', 'a').write('x')\n"
REFUSAL = "executes code that you have not launched or trusted yet:"


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def foreign(tmp_path: Path, fabricate: Fabricate) -> SampledRun:
    """Return a record of a script that was copied here, next to a script of that name."""
    (tmp_path / "theirs.py").write_text(PROGRAM)
    return fabricate("far", world=1, script={"path": "theirs.py"}).end()


def executions(folder: Path) -> int:
    marker = folder / "executed"
    return len(marker.read_text()) if marker.exists() else 0


@pytest.mark.parametrize("command", ["rerun", "resume"])
def test_a_strangers_record_is_refused_without_a_terminal_until_it_is_trusted(
    command: str, distrain: Distrain, foreign: SampledRun, tmp_path: Path
) -> None:
    refused = distrain(command, "far", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"run {foreign.id} ({foreign.dir}) {REFUSAL}" in refused.stderr
    assert "script.path = theirs.py" in refused.stderr.replace('"', "")
    assert "Add --trust" in refused.stderr
    for read in (("show", "far"), ("runs",), ("logs", "far"), ("export", "far", "--to", "csv")):
        distrain(*read)
    assert executions(tmp_path) == 0
    assert distrain(command, "far", "--trust").returncode == 0
    assert distrain(command, "far").returncode == 0, "it is remembered"
    assert executions(tmp_path) == 2


def test_a_strangers_record_is_refused_where_standard_input_is_closed(
    foreign: SampledRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    command = shlex.join([sys.executable, "-m", "distrain", "rerun", foreign.id])
    refused = subprocess.run(
        ["sh", "-c", f"{command} <&-"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith("Add --trust to allow this.\n")


def test_own_runs_are_rerun_without_a_question_wherever_their_records_are(
    distrain: Distrain, tmp_path: Path, runs_dir: Path
) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    assert distrain("run", "mine.py", "--lr", "1").returncode == 0
    (tmp_path / "mine.py").write_text(f"# edited\n{PROGRAM}")
    moved = shutil.move(runs_dir, tmp_path / "moved")
    again = distrain("rerun", "latest", "--runs-dir", moved)
    assert again.returncode == 0, again.stderr
    assert distrain("rerun", "latest", "--runs-dir", moved).returncode == 0
    assert executions(tmp_path) == 3


@pytest.mark.parametrize(("answer", "executed"), [("y\n", 1), ("\n", 0), ("n\n", 0)])
def test_a_terminal_is_asked_and_no_is_the_default(
    answer: str, executed: int, foreign: SampledRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "distrain", "rerun", "far", "--json"],
        env=environment,
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 1 << 16)
        assert REFUSAL in shown.decode()
        os.write(ours, answer.encode())
        reader = subprocess.Popen(["cat"], stdin=ours, stdout=subprocess.DEVNULL)
        assert process.wait(60) == (0 if executed else 2)
        os.close(ours)
        reader.wait(60)
    assert executions(tmp_path) == executed


def test_a_foreign_config_becomes_no_preset_of_ones_own_without_trust(
    distrain: Distrain, foreign: SampledRun, tmp_path: Path
) -> None:
    refused = distrain("presets", "save", "mine", "--from", "far")
    assert refused.returncode == 2
    assert "Add --trust" in refused.stderr
    assert distrain("presets", "save", "mine", "--from", "far", "--trust").returncode == 0


def test_a_foreign_record_is_not_trusted_because_it_says_that_it_was_only_observed(
    distrain: Distrain, foreign: SampledRun
) -> None:
    file = foreign.dir / "run.json"
    state = json.loads(file.read_text())
    state["plan"]["observed"] = True
    file.write_text(json.dumps(state))
    assert "Add --trust" in distrain("presets", "save", "mine", "--from", "far").stderr
    assert "was not started by distrain" in distrain("rerun", "far").stderr


def test_a_preset_that_is_named_by_its_path_is_trusted(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(PROGRAM)
    (tmp_path / "mine.toml").write_text('[script]\npath = "theirs.py"\n')
    assert distrain("run", "./mine.toml").returncode == 0
    assert distrain("rerun", "latest").returncode == 0
    assert executions(tmp_path) == 2


def test_a_preset_is_checked_and_previewed_without_executing_its_code(
    distrain: Distrain, tmp_path: Path
) -> None:
    (tmp_path / "theirs.py").write_text(f"{PROGRAM}def model(): ...\n")
    (tmp_path / "theirs.toml").write_text('[model]\nname = "theirs:model"\n')
    for words in (("presets", "validate"), ("presets", "show"), ("run", "--dry-run")):
        done = distrain(*words, "./theirs.toml")
        assert done.returncode == 0, done.stderr
    assert executions(tmp_path) == 0


def test_a_strangers_bench_is_refused_and_its_claims_about_processes_are_not_believed(
    distrain: Distrain, runs_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs.py").write_text(PROGRAM)
    program = RunConfig.from_dict({"script": {"path": "theirs.py"}})
    configs = {"one": program, "two": program.with_changes({"script.args": ["2"]})}
    with subprocess.Popen(["sleep", "600"]) as other:
        bench = make_bench(
            runs_dir, {"one": 1.0, "two": 2.0}, rounds=1, configs=configs, cwd=str(tmp_path)
        )
        for command in ("rerun", "resume"):
            refused = distrain(command, bench.id)
            assert refused.returncode == 2
            assert REFUSAL in refused.stderr
        change(bench, status="running", pid=other.pid, pid_started=None)
        refused = distrain("stop", bench.id)
        assert refused.returncode == 1
        assert "is not that of the bench" in refused.stderr
        assert other.poll() is None
        other.kill()
    assert executions(tmp_path) == 0
