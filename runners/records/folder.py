"""The folder of a new run: config.toml, run.json, and empty folders for logs and checkpoints."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import RunsFolderError
from distrain.runners.records.meta import Meta, write_meta
from distrain.runners.records.run_ids import new_run_id
from distrain.runners.records.state import RunState, write_state
from distrain.runners.system.files import write_atomically
from distrain.runners.system.limits import explain


def create_run(
    runs_dir: Path,
    config: RunConfig,
    *,
    word: str,
    plan: Plan | None = None,
    command: list[str] | None = None,
    parent: str | None = None,
    group: str = "",
    meta: Meta | None = None,
    queue: bool = False,
) -> Path:
    """Create the folder of a new run and return it; the run is "starting", or "queued".

    `word` (a preset or strategy) becomes part of the id; `parent` is the id of the run that this
    one resumes or repeats, `group` that of its sweep. Raises RunsFolderError.
    """
    now = time.time()
    run_id = new_run_id(word, now)
    folder = runs_dir / run_id
    state = RunState(
        run_id=run_id,
        status="queued" if queue else "starting",
        created=now,
        host=socket.gethostname(),
        command=command or [],
        parent=parent,
        group=group,
        plan=plan,
    )
    try:
        with make_folder(folder, config, state):
            if meta is not None:
                write_meta(folder, meta)
    except OSError as error:
        raise RunsFolderError(
            f"cannot write to the runs folder {runs_dir}: {explain(error)}; "
            "choose another with --runs-dir or $DISTRAIN_RUNS_DIR"
        ) from None
    return folder


@contextlib.contextmanager
def make_folder(folder: Path, config: RunConfig, state: RunState) -> Iterator[None]:
    """Create a run's folder completely or not at all.

    run.json, which makes it a record, is written after the block. Raises OSError.
    """
    folder.mkdir(parents=True)
    try:
        (folder / "logs").mkdir()
        (folder / "checkpoints").mkdir()
        write_atomically(folder / "config.toml", config.to_toml().encode())
        yield
        write_state(folder, state)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
