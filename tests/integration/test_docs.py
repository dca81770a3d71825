"""README and docs: commands parse, tables are complete, links resolve, code runs."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from distrain.runners.analysis.comparison.model import (
    Candidate,
    CandidateCurve,
    Comparison,
    Difference,
)
from distrain.runners.analysis.interval import Interval
from distrain.runners.cli.command_table import GROUPS
from distrain.runners.cli.parser import parse
from distrain.runners.cli.run_page import collect_data
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Message, as_dict, decode
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.series import SERIES
from distrain.runners.runs import Run, find
from distrain.runners.system.devices import Device
from tests.support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {command.name: command for group in GROUPS.values() for command in group}


def text(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def scripts(page: str) -> dict[str, str]:
    """Return the Python blocks by the file name in their first line."""
    found = (re.match(r"# (\w+\.py)\n", block) for block in blocks(ROOT / page, "python"))
    return {match[1]: match.string for match in found if match}


def section(page: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text(page), re.M | re.DOTALL)
    assert match, f"{page} has no heading {heading}"
    return match[1]


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for target in (target for target in targets if not target.startswith("https://")):
        name, _, anchor = target.partition("#")
        other = (page.parent / name) if name else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings]
            assert anchor in slugs, target


def commands(page: Path) -> Iterator[list[str]]:
    """Yield every command line of the page's shell blocks, as words."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    for block in blocks(page, "console"):
        lines += [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, "&&"]:
            if set(word) <= set("|>&;<"):
                yield command
                command = []
            else:
                command.append(word)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_the_pages_are_valid(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE)
    for words in commands(page):
        if words[:1] == ["distrain"]:
            parse(words[1:])
        if words[:1] == ["make"]:
            assert words[1] in targets


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from options(sub)
        elif action.option_strings and action.dest != "help":
            yield action.option_strings[-1]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_its_options_are_explained(name: str) -> None:
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    told = section("docs/command-line.md", name)
    if "options of `run`" in told:
        told += section("docs/command-line.md", "run")
    everywhere = {"--runs-dir"}
    missing = {option for option in options(parser) if option not in told} - everywhere
    assert not missing


@pytest.mark.parametrize("name", ["presets", "app"])
def test_the_tables_of_a_page_are_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = text(f"docs/{name}.md")
    assert "made by make_reference.py" in page
    assert module.filled(page) == page, "run `python docs/make_reference.py`"


@pytest.mark.parametrize("preset", blocks(ROOT / "docs/presets.md", "toml"))
def test_presets_on_the_page_are_valid(preset: str) -> None:
    RunConfig.from_toml(preset)


@pytest.mark.parametrize(
    "message", get_args(Message), ids=lambda message: message.__struct_config__.tag
)
def test_the_protocol_page_has_every_message_with_all_its_fields(message: type) -> None:
    tag = message.__struct_config__.tag  # type: ignore[attr-defined]
    page = text("docs/protocol.md")
    headed = f"### `{tag}`" in page
    told = section("docs/protocol.md", f"`{tag}`") if headed else page
    assert f"`{tag}`" in page
    missing = {name for name in message.__struct_encode_fields__ if f"`{name}`" not in told}  # type: ignore[attr-defined]
    assert not missing


def test_the_session_on_the_page_is_valid() -> None:
    (session,) = (block for block in blocks(ROOT / "docs/protocol.md", "text") if "hello" in block)
    said = [decode(line[2:].encode()) for line in session.splitlines()]
    kinds = [as_dict(event)["type"] for event in said]
    assert kinds[0] == "hello"
    assert kinds[-1] == "finished"
    assert [kind for kind in kinds if "stop" in kind] == ["stop", "stopping", "stop_at"]


@pytest.mark.parametrize("heading", ["run.json", "metrics.db"])
def test_the_records_page_lists_what_a_record_contains(heading: str) -> None:
    told = section("docs/records.md", heading)
    if heading == "run.json":
        for name in (*RunState.__struct_fields__, *Plan.__struct_fields__):
            assert f"`{name}`" in told
        return
    for series in SERIES:
        (row,) = (line for line in told.splitlines() if line.startswith(f"| `{series.name}` |"))
        assert re.findall(r"`(\w+)`", row) == [series.name, *series.fields]


# --- code --------------------------------------------------------------------------------------

Python = Callable[..., str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("docs")


@pytest.fixture(scope="module")
def python(place: Path) -> Python:
    """Return a function that runs a script in an empty folder and returns its output."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=place,
            env={
                **os.environ,
                "DISTRAIN_RUNS_DIR": str(place / "runs"),
                "PYTHONPATH": str(ROOT / "src"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def table(python: Python) -> list[str]:
    return python(str(ROOT / "examples/three_presets.py"), "--quick").splitlines()


@pytest.fixture
def record(table: list[str], place: Path) -> Iterator[Record]:
    """Return the record of the last of the three presets, `ddp`."""
    with find("ddp", place / "runs").record as found:
        yield found


def test_the_example_compares_three_presets_that_agree(table: list[str]) -> None:
    head, *rows = (line.split() for line in table)
    assert [row[0] for row in rows] == ["single", "allreduce", "ddp"]
    top1 = head.index("top1")
    assert len({row[top1] for row in rows}) == 1


def test_the_keys_of_json_are_explained(record: Record) -> None:
    told = section("docs/command-line.md", "run")
    assert not {key for key in record.summary() if f"`{key}`" not in told}
    told += section("docs/command-line.md", "show")
    assert not {key for key in collect_data(record) if f"`{key}`" not in told}
    assert not {key for key in collect_data(record)["ranks"][0] if f"`{key}`" not in told}


def test_the_keys_of_a_comparison_are_explained() -> None:
    told = section("docs/command-line.md", "compare")
    names = {*Comparison.__struct_encode_fields__, *Candidate.__struct_encode_fields__}
    names |= {
        *Difference.__struct_fields__,
        *CandidateCurve.__struct_fields__,
        *Interval.__struct_fields__,
    }
    assert not {name for name in names if f"`{name}`" not in told}


def test_queries_of_the_records_page_return_rows(record: Record) -> None:
    db = sqlite3.connect(f"file:{record.dir}/metrics.db?mode=ro", uri=True)
    queries = ";".join(blocks(ROOT / "docs/records.md", "sql"))
    for statement in filter(str.strip, queries.split(";")):
        rows = db.execute(statement).fetchall()
        # So short a run fills no roll-up, and a preset logs nothing of its own.
        assert rows or "rollup" in statement or "logged" in statement
    db.close()


def test_scripts_of_the_pages_run(python: Python, table: list[str], place: Path) -> None:
    documented = {**scripts("docs/python.md"), **scripts("docs/records.md")}
    for name in ("reading.py", "compared.py", "own_loop.py", "verifying.py", "weights.py"):
        (place / name).write_text(documented[name])
        python(name)
    (place / "mistakes.py").write_text(documented["mistakes.py"])
    assert f"```text\n{python('mistakes.py')}```" in text("docs/python.md")


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_launching_works_as_documented_also_with_a_task_that_leaves_a_note(
    page: str, python: Python, place: Path
) -> None:
    (script,) = (block for block in blocks(ROOT / page, "python") if " launch(" in block)
    # One process starts sooner than two, and the script is the same.
    quick = script.replace('"ddp"', '"single"').replace("cpu:2", "cpu:1")
    noted = quick.replace('"train.epochs": 2', '"train.epochs": 2, "task.name": "noted:Noted"')
    (place / "noted.py").write_text(scripts("docs/python.md")["noted.py"])
    (place / "launching.py").write_text(noted)
    printed = python("launching.py")
    assert "weights are last week's" in printed
    assert "Finished(" in printed
    assert "0.90" in printed.splitlines()[-1]


def test_the_bench_of_the_page_compares(python: Python, place: Path) -> None:
    script = scripts("docs/python.md")["comparing.py"]
    quick = script.replace('"ddp', '"single').replace("cpu:2", "cpu:1").replace("0.5", "0.2")
    (place / "comparing.py").write_text(quick)
    plain, half = python("comparing.py").splitlines()
    assert plain.startswith("single Interval(")
    assert half.startswith("single,precision=bf16 Interval(")


PLAIN_RANKS = {
    "plain_rank.py": scripts("docs/protocol.md")["plain_rank.py"],
    "own_loop.py": scripts("docs/python.md")["own_loop.py"],
}


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    """Return a function that starts a supervisor whose two ranks run a script."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> Run:
        config = RunConfig()
        plan = plan_here(config, [Device(kind="cpu", index=index) for index in range(2)])
        folder = create_run(tmp_path / "runs", config, word="plain", plan=plan)
        script = tmp_path / name
        script.write_text(PLAIN_RANKS[name])
        helper = str(ROOT / "tests" / "support" / "plain_ranks.py")
        started.append(
            subprocess.Popen(
                [sys.executable, helper, str(folder), str(script)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                start_new_session=True,
            )
        )
        return Run(Record(folder))

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", PLAIN_RANKS)
def test_ranks_without_our_worker_finish(name: str, supervised: Callable[[str], Run]) -> None:
    run = supervised(name)
    assert run.wait(120)["status"] == "completed"
    steps = {rank.step for rank in run.record.ranks()}
    assert len(steps) == 1
    assert {sums["samples"] for sums in run.record.totals().values()} == {16 * steps.pop()}


@pytest.mark.parametrize("name", PLAIN_RANKS)
def test_ranks_without_our_worker_stop_together(
    name: str, supervised: Callable[[str], Run]
) -> None:
    run = supervised(name)
    deadline = time.monotonic() + 60
    while len(run.record.latest()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    infos: list[Any] = run.record.ranks()
    assert [info.phase for info in infos] == ["finished", "finished"]
    assert len({info.step for info in infos}) == 1
    assert msgspec.json.encode(run.summary())
