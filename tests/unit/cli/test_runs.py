"""The list of runs and benches, and the choice of one by name, while others are removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from distrain.runners import lookup
from distrain.runners.bench import Bench, handle
from distrain.runners.cli import runs
from distrain.runners.cli.run_selection import current_status
from distrain.runners.errors import DistrainError
from tests.support.benches import make_bench
from tests.support.records import RunBuilder


def remove_one_after_it_was_read(patch: pytest.MonkeyPatch, removed: Bench) -> None:
    """Let whoever lists benches find one that is moved away before more of it is read."""

    def list_and_remove(*arguments: object, **options: object) -> list[Bench]:
        found = handle.all_benches(*arguments, **options)  # type: ignore[arg-type]
        shutil.rmtree(removed.dir)
        return found

    for module in (runs, lookup):
        patch.setattr(module, "all_benches", list_and_remove)


def test_a_bench_that_is_removed_meanwhile_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, _ = make_bench(tmp_path, name="removed"), make_bench(tmp_path, name="kept")
    remove_one_after_it_was_read(monkeypatch, removed)
    errors: list[DistrainError] = []
    assert [row["name"] for row in runs.read_rows(tmp_path, errors)] == ["kept"]
    assert [removed.id in str(error) for error in errors] == [True]


def test_a_bench_is_found_by_its_name_while_another_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, kept = make_bench(tmp_path, name="removed"), make_bench(tmp_path, name="kept")
    remove_one_after_it_was_read(monkeypatch, removed)
    assert lookup.find("kept", tmp_path).id == kept.id


@pytest.mark.parametrize(("status", "shown"), [("running", "stalled"), ("stopping", "stopping")])
def test_a_stalled_run_is_listed_as_stopping_once_it_is_asked_to_stop(
    tmp_path: Path, status: str, shown: str
) -> None:
    run = RunBuilder(tmp_path).stalled()
    run.writer.set_state(status=status)
    assert [current_status(row) for row in runs.read_rows(tmp_path, [])] == [shown]
    assert run.record.state.current_status == shown
