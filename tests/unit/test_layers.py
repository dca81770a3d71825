"""What each part loads, seen in `sys.modules` of a fresh process.

The static half of the rule is import-linter's, in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

HEAVY = {"torch", "torchvision", "textual", "sklearn", "horovod"}
PUBLIC = (
    "ConfigError",
    "DistrainError",
    "Record",
    "Reporter",
    "Run",
    "RunConfig",
    "all_runs",
    "compare",
    "find",
    "init",
    "launch",
    "launch_sweep",
    "load_preset",
    "log",
    "log_eval",
    "phase",
    "should_stop",
    "step",
    "track",
    "verify",
)
# These load torch in the functions that ranks run, and not before: a rank greets first.
RANK_SIDE = (
    "distrain.runners.training.worker",
    "distrain.runners.launchers.spawn",
    "distrain.runners.launchers.torchrun",
    "distrain.runners.instrumentation.script_rank",
)


def modules_after(code: str) -> set[str]:
    """Return the top-level modules of a process that has run `code`, and our own packages."""
    ending = (
        "import sys\n"
        "print(*{name.removeprefix('distrain.').partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_distrain_loads_next_to_nothing() -> None:
    assert not modules_after("import distrain") & {*HEAVY, "rich", "msgspec", "models", "tui"}


def test_all_public_names_exist_without_heavy_imports() -> None:
    loaded = modules_after(
        f"import distrain\nassert distrain.__all__ == {sorted(PUBLIC)}, distrain.__all__\n"
        "for name in distrain.__all__: getattr(distrain, name)"
    )
    assert "distrain" in loaded
    assert not loaded & {*HEAVY, "rich", "tui"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    import distrain

    assert getattr(distrain, name).__name__ == name


def test_a_name_that_is_not_public_is_missing_as_in_any_module() -> None:
    with pytest.raises(ImportError):
        from distrain import nothing_of_this_name  # noqa: F401


@pytest.mark.parametrize(
    "module",
    [
        "distrain.runners.cli",
        "distrain.runners.supervision.device_queue",
        "distrain.runners.cli.run_picture",
        "distrain.runners.doctor.survey",
        "distrain.runners.horovod.install",
        "distrain.runners.supervision.supervisor",
        "distrain.runners.analysis.comparison.report",
        "distrain.runners.records.reader",
        "distrain.runners.protocol.reporter",
        "distrain.runners.records.snapshot",
        *RANK_SIDE,
        "distrain.models",
        "distrain.models.catalog",
        "distrain.tui",
    ],
)
def test_a_module_loads_nothing_heavy(module: str) -> None:
    assert not modules_after(f"import {module}") & HEAVY


def test_the_app_with_all_its_screens_loads_no_torch() -> None:
    files = [
        *(ROOT / "tui" / "screens").glob("[a-z]*.py"),
        *(ROOT / "tui" / "dialogs").glob("*.py"),
    ]
    names = {f"distrain.tui.{path.parent.name}.{path.stem}" for path in files}
    assert {"distrain.tui.screens.launch_screen", "distrain.tui.dialogs.dialog"} <= names
    loaded = modules_after(f"import distrain.tui.app, {', '.join(sorted(names))}")
    assert "textual" in loaded
    assert not loaded & (HEAVY - {"textual"} | {"numpy"})


def test_the_table_of_runs_loads_only_what_it_shows() -> None:
    later = (
        "distrain.runners.bench",
        "distrain.runners.config.schema",
        "distrain.runners.lookup",
        "distrain.tui.screens.run_screen",
        "ctypes",
        "json",
        "psutil",
        "sqlite3",
    )
    code = "import sys, distrain.tui.app, distrain.tui.screens.runs_screen"
    code += f"\nprint(*{{*{later}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_reporter_in_a_users_script_loads_little() -> None:
    loaded = modules_after("from distrain import Reporter")
    assert not loaded & {*HEAVY, "rich", "models", "psutil", "numpy"}


def test_the_plotting_library_is_loaded_only_for_a_report() -> None:
    assert not modules_after("import distrain.runners.cli.compare") & {"plotly", "jinja2"}


def test_presets_are_files_and_no_code() -> None:
    before = modules_after("import distrain")
    assert modules_after("import distrain.presets") - before == {"presets"}


def test_strategies_load_horovod_only_when_asked_for() -> None:
    assert "horovod" not in modules_after("import distrain.runners.strategies.ddp")


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A user's folder in which packages are called as ours are."""
    for name in ("models", "presets", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('the wrong {name}')")
    for name in ("catalog", "data", "errors", "task"):
        (tmp_path / "models" / f"{name}.py").write_text("raise ImportError('the wrong one')")
    return tmp_path


def in_folder(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH would make up for an installation that is not there.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)


SCRIPT = Path(sys.executable).with_name("distrain")
COMMANDS = {"distrain": (str(SCRIPT),), "python -m distrain": (sys.executable, "-m", "distrain")}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_works_next_to_folders_with_our_names(command: str, crowded: Path) -> None:
    if not SCRIPT.exists():
        pytest.skip("distrain is not installed here")
    version = in_folder(crowded, *COMMANDS[command], "--version")
    assert version.stdout.startswith("distrain "), version.stderr
    valid = in_folder(crowded, *COMMANDS[command], "presets", "validate", "ddp")
    assert valid.stdout == "ddp: valid\n", valid.stderr
