"""Checkpoint files: written completely or not at all; the newest and the best are kept."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.utils._pytree import tree_map_only

from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events.base import NEVER
from distrain.runners.records.checkpoint_files import last_checkpoint, numbered_files, step_of
from distrain.runners.system.files import sync_folder

FORMAT = 1
FOLDER_S = 30.0  # in which the supervisor ends a run whose folder is gone
FOLDER_CHECK_S = 0.2
# What training continues from; `best` and `best_metric` may be empty.
FIELDS: dict[str, type] = {
    "step": int,
    "epoch": int,
    "offset": int,
    "model": dict,
    "optimizer": dict,
    "precision": dict,
    "world_size": int,
    "config": str,
    "ranks": list,
}
COUNTS = ("step", "epoch", "offset", "world_size")
DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Checkpoints:
    """The folder `checkpoints/` of a run: files step-N.pt, links or copies `last.pt` and `best.pt`.

    `keep` is the number of newest files to keep. A later process of the same run continues with
    the folder: it keeps the target of `best.pt` until there is a better checkpoint.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        best = folder / "best.pt"
        self._best = best.readlink().name if best.is_symlink() else None

    @property
    def last(self) -> str | None:
        """The path of the newest checkpoint; None before the first."""
        path = last_checkpoint(self._folder)
        return str(path) if path else None

    def save(self, content: dict[str, Any], best: bool) -> Path:
        """Write a checkpoint, delete those that are neither new nor best, and return its path.

        The file appears under its name only after it is complete and on disk.
        """
        self._make_folder()
        path = self._folder / f"step-{content['step']:08d}.pt"
        partial = path.with_suffix(".partial")
        with _new_file(partial) as file:
            write(file, {"format": FORMAT, **content})
        partial.rename(path)
        # `best.pt` first: after a kill in between, the next process starts from `last.pt`.
        if best:
            self._best = path.name
            self._link("best.pt", path.name)
        self._link("last.pt", path.name)
        self._prune(path)
        sync_folder(self._folder)
        return path

    def _make_folder(self) -> None:
        """Make the folder in that of the run, and never where the run's was moved or deleted.

        Waits for a run's folder that is out of sight, as on a network file system for a moment.
        """
        deadline = time.monotonic() + FOLDER_S
        while True:
            try:
                return self._folder.mkdir(exist_ok=True)
            except FileNotFoundError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(FOLDER_CHECK_S)

    def _link(self, name: str, target: str) -> None:
        partial = self._folder / f"{name}.partial"
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        try:
            partial.symlink_to(target)
        except OSError:  # not every file system has links
            with (self._folder / target).open("rb") as source, _new_file(partial) as file:
                shutil.copyfileobj(source, file)
        partial.rename(self._folder / name)

    def _prune(self, last: Path) -> None:
        """Delete all but the newest and the best; copies that a person has made have other names.

        Also deletes what a process left that was killed while it saved: partial files, and
        files of steps after `last`.
        """
        files = numbered_files(self._folder)
        kept = [path for path in files if step_of(path) <= step_of(last)][-self._keep :]
        for path in (*files, *self._folder.glob("*.partial")):
            if path not in kept and path.name != self._best:
                path.unlink()


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is on disk afterwards, or was deleted because it could not be written."""
    try:
        with path.open("wb") as file:
            yield file
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # the disk may be full because of it
        raise


def write(file: BinaryIO, content: dict[str, Any]) -> None:
    """Write tensors. Raises OSError, which torch hides behind an error of its own."""
    try:
        torch.save(content, file)
        file.flush()
    except BaseException as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def why_unloadable(content: dict[str, Any]) -> str:
    """Return why `load` would refuse what is to be saved; empty where it would not.

    It makes no objects of the user's classes, nor arrays of numpy, as that may run their code.
    """
    if not (types := _refused_types(content)):
        return ""
    parts = [part for part, value in content.items() if _refused_types(value)]
    return (
        f"a checkpoint could not be loaded again: its {' and '.join(parts)} has {types}. "
        "Keep that as tensors, numbers or text, or set checkpoint.keep to 0"
    )


def _refused_types(value: Any) -> str:
    """Return the names of what `load` refuses of a value, or why that cannot be saved at all."""
    file = io.BytesIO()
    try:
        torch.save(tree_map_only(torch.Tensor, lambda _: None, value), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError:
        file.seek(0)
        return ", ".join(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file)))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        return f"what cannot be saved ({error})"
    return ""


def follow_link(path: str) -> str:
    """Return what a link such as `last.pt` points to now; another path as it is."""
    return os.path.join(os.path.dirname(path), os.readlink(path)) if os.path.islink(path) else path


def load(path: str) -> dict[str, Any]:
    """Read a checkpoint onto the CPU. Raises ConfigError where that is not possible.

    The file is a zip archive with a checksum of each tensor, which torch writes and does not check.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if _is_larger_than_file(archive, path) or archive.testzip() is not None:
                raise zipfile.BadZipFile
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError([("checkpoint.load", f"there is no file {path}")]) from None
    except Exception:
        text = f"{path} cannot be read as a checkpoint: it is damaged, or another kind of file"
        raise ConfigError([("checkpoint.load", f"{text}{_hint_at_another(path)}")]) from None
    found = content.get("format") if isinstance(content, dict) else None
    if not isinstance(found, int) or found != FORMAT:
        is_newer = isinstance(found, int) and found > FORMAT
        what = "was written by a newer version" if is_newer else "is not a checkpoint"
        raise ConfigError([("checkpoint.load", f"{path} {what} of distrain")])
    return content


def _hint_at_another(path: str) -> str:
    """Return that the folder has another checkpoint, the newest one; an empty string without."""
    damaged = Path(follow_link(path))
    others = [file for file in numbered_files(damaged.parent) if file.name != damaged.name]
    return f"; set this key to {others[-1]} to load that instead" if others else ""


def _is_larger_than_file(archive: zipfile.ZipFile, path: str) -> bool:
    """Return whether a small archive could take forever to read; torch never compresses."""
    members = archive.infolist()
    is_compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    return is_compressed or sum(member.file_size for member in members) > os.path.getsize(path)


def load_training(path: str) -> dict[str, Any]:
    """Read a checkpoint with all that training continues from. Raises ConfigError."""
    content = load(path)
    wrong = [name for name, kind in FIELDS.items() if not isinstance(content.get(name), kind)]
    if wrong := wrong or _implausible_fields(content):
        text = f"{path} is not a complete checkpoint: {', '.join(wrong)} is missing or wrong"
        raise ConfigError([("checkpoint.load", text)])
    return content


def _implausible_fields(content: dict[str, Any]) -> list[str]:
    """Return the fields that have the right type, and a value that is never saved."""
    wrong = [
        name
        for name in COUNTS
        if isinstance(content[name], bool) or not 0 <= content[name] <= NEVER
    ]
    if content["epoch"] > content["step"]:  # each epoch has a step
        wrong.append("epoch")
    if not isinstance(content.get("best"), float | int | None):
        wrong.append("best")
    ranks = content["ranks"]
    if len(ranks) != content["world_size"] or not all(map(_is_rank_state, ranks)):
        wrong.append("ranks")
    return [*dict.fromkeys(wrong)]


def _is_rank_state(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), dict) for name in ("random", "strategy")
    )


@contextlib.contextmanager
def refusing_damage(part: str) -> Iterator[None]:
    """Raise ConfigError where values of a checkpoint do not have the form that is saved."""
    try:
        yield
    except DAMAGE:
        text = f"the checkpoint is damaged: its {part} cannot be restored"
        raise ConfigError([("checkpoint.load", text)]) from None


def restore_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore what `state_dict` returned. Raises one of DAMAGE.

    Fused kernels access the memory of these tensors without a check of their size, so each is
    copied into memory of the parameter's layout.
    """
    groups = optimizer.param_groups
    fused = {each for group in groups if group.get("fused") for each in group["params"]}
    optimizer.load_state_dict(state)
    for parameter, values in optimizer.state.items():
        if parameter not in fused:
            continue
        for name, value in values.items():
            if value is None:
                continue
            is_step = name == "step"
            if value.shape != (() if is_step else parameter.shape):
                raise ValueError(name)
            # A checkpoint of kernels that were not fused has its steps on the CPU.
            like = value.to(parameter.device) if is_step else parameter
            values[name] = torch.empty_like(like, requires_grad=False).copy_(value)
