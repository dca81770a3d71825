"""Checkpoints: one writer, whole or not at all; newest and best are kept."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runners.errors import ConfigError
from runners.state import sync_folder

FORMAT = 1


class Checkpoints:
    """The `checkpoints/` folder of a record: step-N.pt files, links `last.pt` and `best.pt`.

    A later process of the same run goes on with it: what `best.pt` names is kept until there is a
    better one.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep
        best = folder / "best.pt"
        self._best = best.readlink().name if best.is_symlink() else None

    @property
    def last(self) -> str | None:
        """The path of the newest; None before the first."""
        path = self._folder / "last.pt"
        return str(path.resolve()) if path.exists() else None

    def save(self, content: dict[str, Any], best: bool) -> Path:
        """Write, fsync and rename, then drop what is neither new nor best; gives the path."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"step-{content['step']:08d}.pt"
        partial = path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            partial.unlink()  # it may be what filled the disk
            if isinstance(error.__context__, OSError):  # which torch words as a fault of its own
                raise error.__context__ from None
            raise
        partial.rename(path)
        if best:  # before it is the last, to which the process after a kill goes back
            self._best = path.name
            self._link("best.pt", path.name)
        self._link("last.pt", path.name)
        self._prune(path)
        sync_folder(self._folder)
        return path

    def _link(self, name: str, target: str) -> None:
        fresh = self._folder / f"{name}.partial"
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        fresh.symlink_to(target)
        fresh.rename(self._folder / name)

    def _prune(self, last: Path) -> None:
        """Later steps and drafts are there where a process was killed while it saved."""
        there = sorted(self._folder.glob("step-*.pt"))
        kept = [path for path in there if path <= last][-self._keep :]
        drafts = self._folder.glob("*.partial")
        for path in (*there, *drafts):
            if path not in kept and path.name != self._best:
                path.unlink()


def load(path: str) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; raises ConfigError with one sentence."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError([("checkpoint.load", f"there is no file {path}")]) from None
    except Exception:
        raise ConfigError([("checkpoint.load", f"{path} cannot be read as a checkpoint")]) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError([("checkpoint.load", f"{path} is not a checkpoint of distrain")])
    return content


def seed_generators(seed: int) -> None:
    """Python's, numpy's and torch's own generators of this process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """All generators of this process, as what `weights_only` loading accepts."""
    version, internal, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state()
    state = {
        "python": [version, list(internal), gauss],
        "numpy": [kind, [int(key) for key in keys], *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what `random_state` gave; a checkpoint of a CPU run has nothing for a GPU."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
