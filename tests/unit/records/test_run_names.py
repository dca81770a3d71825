"""The names of reruns."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.records.meta import Meta, write_meta
from distrain.runners.records.run_names import next_free_name


@pytest.mark.parametrize(
    ("taken", "name", "expected"),
    [
        (["base"], "base", "base-2"),
        (["base", "base-2"], "base", "base-3"),
        (["base", "base-2"], "base-2", "base-3"),
        (["lr-1"], "lr-1", "lr-1-2"),
        (["base"], "", ""),
    ],
)
def test_a_rerun_gets_the_next_free_name(
    taken: list[str], name: str, expected: str, tmp_path: Path
) -> None:
    for number, each in enumerate(taken):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        write_meta(folder, Meta(name=each))
    (tmp_path / "a file").touch()
    assert next_free_name(name, tmp_path) == expected
