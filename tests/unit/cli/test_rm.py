"""Removing and restoring runs and benches that are given by their paths."""

from __future__ import annotations

import errno
import os
import shlex
from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

import pytest

from distrain.runners.cli import rm
from distrain.runners.cli.parser import parse
from distrain.runners.errors import DistrainError
from distrain.runners.records.trash import move_to_trash, restore
from tests.support.benches import make_bench


def test_only_what_is_in_the_trash_is_restored(tmp_path: Path) -> None:
    live = make_bench(tmp_path / "runs", begun=1, status="running")
    removed = make_bench(tmp_path / "runs").remove()
    arguments = Namespace(runs_dir=str(tmp_path / "runs"), undo=True, runs=[str(live.dir)])
    with pytest.raises(DistrainError, match="in the trash"):
        rm.execute(arguments)
    assert live.dir.exists()
    arguments.runs = [str(removed)]
    assert rm.execute(arguments) == 0
    assert (tmp_path / "runs" / removed.name).exists()


def test_a_relative_link_to_another_disk_is_removed_and_restored(tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "disk")
    link = tmp_path / "runs" / bench.id
    link.parent.mkdir()
    link.symlink_to(f"../disk/{bench.id}")
    moved = move_to_trash(link)
    assert moved.samefile(bench.dir)
    assert restore(moved).samefile(bench.dir)
    assert not moved.is_symlink()


@pytest.mark.parametrize("mode", [0o775, 0o1777])
def test_all_users_of_a_runs_folder_can_use_its_trash(tmp_path: Path, mode: int) -> None:
    bench = make_bench(tmp_path / "runs")
    bench.dir.parent.chmod(mode)
    assert move_to_trash(bench.dir).parent.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])  # EINVAL: in a user namespace
@pytest.mark.parametrize(("mode", "own_mode"), [(0o1777, 0o1777), (0o775, 0o755), (0o770, 0o700)])
def test_a_user_outside_the_group_of_a_runs_folder_shares_the_trash_with_others_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, own_mode: int, number: int
) -> None:
    bench = make_bench(tmp_path / "runs")
    bench.dir.parent.chmod(mode)
    monkeypatch.setattr(os, "chown", Mock(side_effect=OSError(number, "")))
    assert move_to_trash(bench.dir).parent.stat().st_mode & 0o7777 == own_mode


@pytest.mark.parametrize("is_link", [True, False])
def test_a_private_folder_that_somebody_puts_in_the_place_of_a_new_trash_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    bench = make_bench(tmp_path / "runs")
    bench.dir.parent.chmod(0o777)
    private = tmp_path / "runs" / "private"
    private.mkdir(mode=0o700)
    (private / "diary.txt").touch()

    def mkdir(trash: Path) -> None:
        if is_link:
            trash.symlink_to(private)
        else:
            private.rename(trash)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert move_to_trash(bench.dir).parent.stat().st_mode & 0o7777 == 0o700


def test_what_is_removed_from_another_folder_is_restored_by_the_command_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benches = [make_bench(tmp_path / folder) for folder in ("runs", "others")]
    paths = [str(bench.dir) for bench in benches]
    rm.execute(Namespace(runs_dir=str(tmp_path / "runs"), undo=False, runs=paths))
    assert not any(bench.dir.exists() for bench in benches)
    printed = capsys.readouterr().err
    assert f"moved to {tmp_path / 'others' / '.trash'}: {benches[1].id}" in printed
    for line in printed.splitlines():
        if line.startswith("undo: "):
            rm.execute(parse(shlex.split(line)[2:]))
    assert all(bench.dir.exists() for bench in benches)


@pytest.mark.parametrize("name", ["a", "a~b"])
def test_folders_of_one_name_are_restored_under_that_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for _ in range(2):
        folder.mkdir()
        moved = move_to_trash(folder)
        assert restore(moved) == folder
        move_to_trash(folder)
