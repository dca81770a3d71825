"""What a program calls of distrain: `import distrain`, then `distrain.log(...)`.

Nothing here raises into the program or waits for anybody, except `should_stop` during a stop. Where
distrain has not started this process, all of it does nothing. A problem of ours is printed once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from distrain.runners.instrumentation.rank_session import RankSession

Batch = TypeVar("Batch")


class ScriptRun:
    """The run that this process is a rank of, as `init` returns it.

    `id`, `dir` and `rank` are None where distrain has not started this process. `previous_dir` is
    the folder of the run that this one repeats, in which the program may find its own checkpoint.
    """

    def __init__(self) -> None:
        folder = os.environ.get("DISTRAIN_RUN") if _session else None
        previous = os.environ.get("DISTRAIN_PREVIOUS_RUN") if _session else None
        self.dir = Path(folder) if folder else None
        self.id = self.dir.name if self.dir else None
        self.previous_dir = Path(previous) if previous else None
        self.rank = int(os.environ.get("RANK", "0")) if _session else None

    def finish(self) -> None:
        """Send what has been logged so far."""
        _attempt(RankSession.flush)

    def __enter__(self) -> ScriptRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


def init(config: Mapping[str, Any] | None = None) -> ScriptRun:
    """Return the run of this process, and record the settings of the program.

    `config` is any mapping, such as `vars(args)`; values other than numbers and text become text.
    """
    if config is not None:
        _attempt(RankSession.describe, config)
    return ScriptRun()


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """Record values by name: numbers, or tensors with one element, which may be on a GPU.

    Tensors are copied on their device and read later, without synchronisation. `step` is where the
    values are drawn; by default it is the number of finished steps.
    """
    _attempt(RankSession.log, values, step)


def log_eval(metrics: Mapping[str, Any], samples: int, *, reduced: bool = False) -> None:
    """Record an evaluation: means of this rank over its `samples`.

    The means of all ranks are weighted by their samples. With `reduced` they are those of all ranks
    already, and rank 0's are taken.
    """
    _attempt(RankSession.log_evaluation, metrics, samples, reduced)


def step(samples: int | None = None) -> None:
    """Record that an optimizer step is finished, of this many samples on this rank.

    Without `samples` they are counted by `track`, if the batches come from there.
    """
    _attempt(RankSession.step, samples)


def track(loader: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches of the training data; measures the wait for each, and counts samples.

    Each batch counts as a step, unless the program calls `step`.
    """
    if _session is None:
        yield from loader
    else:
        yield from _session.track(loader)


def should_stop() -> bool:
    """Return whether the run is to stop; then save a checkpoint and leave the training loop.

    Every rank calls it once per step, at the same place: all ranks get True in the same step. Once
    it has returned True it always does.
    """
    return _session is not None and _session.should_stop()


_session: RankSession | None = None
_has_failed = False


def begin(session: RankSession) -> None:
    """Make this process the rank; processes that it forks are none."""
    global _session
    _session = session
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _session
    _session = None


def _attempt(act: Callable[..., None], *arguments: Any) -> None:
    """Call a method of the session. What it raises is printed once, and ends nothing."""
    global _has_failed
    if _session is None:
        return
    try:
        act(_session, *arguments)
    except Exception:
        if not _has_failed:
            _has_failed = True
            print(
                "distrain could not record a value; further problems are not printed:",
                file=sys.stderr,
            )
            traceback.print_exc()
