"""What a program calls of distrain: `import distrain`, then `distrain.log(...)`.

Nothing here raises into the program or waits for anybody, except `should_stop` during a stop.
Outside a run all of it does nothing. A problem of distrain is printed once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from distrain.runners.errors import DistrainError
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.named_phase import NamedPhase
from distrain.runners.instrumentation.plain_values import to_samples
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.tracked import make_tracked

if TYPE_CHECKING:
    from distrain.runners.instrumentation.joined_rank import JoinedRank

Batch = TypeVar("Batch")


class ScriptRun:
    """The run that this process is a rank of, as `init` returns it.

    Without a run, `id`, `dir` and `rank` are None. Where distrain has not started the program, they
    belong to the record that `init` has begun; ranks other than 0 know `id` and `dir` only after a
    moment, and on other hosts never. `previous_dir` is the folder of the run that this one
    continues, in which the program may find its own checkpoint. On a host that has joined, both
    folders are those of that host, where what the program saves stays.
    """

    def __init__(self) -> None:
        previous = os.environ.get("DISTRAIN_PREVIOUS_RUN") if _session else None
        self.previous_dir = Path(previous) if previous else None
        self.rank = _session.rank if _session else None
        self._joined = _joined
        self._session = _session
        folder = os.environ.get("DISTRAIN_SCRIPT_FOLDER") or os.environ.get("DISTRAIN_RUN")
        self._folder = Path(folder) if folder and _session else None

    @property
    def dir(self) -> Path | None:
        """The folder of the run, in which the program may save its own files."""
        if self._folder is None:
            return self._joined.folder if self._joined else None
        if "DISTRAIN_SCRIPT_FOLDER" in os.environ:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                text = f"cannot make {self._folder} ({error.strerror}): choose another runs folder "
                text += "with $DISTRAIN_RUNS_DIR; what is saved in run.dir is deleted at the end"
                _print_problem(text)
                self._folder = Path(os.environ["DISTRAIN_RUN"])
        return self._folder

    @property
    def id(self) -> str | None:
        """The id of the run, by which `distrain show` finds it."""
        folder = self._folder or (self._joined.folder if self._joined else None)
        return folder.name if folder else None

    @property
    def steps(self) -> int:
        """The finished steps of this rank so far."""
        return self._session.steps if self._session else 0

    def begin_stage(self) -> None:
        """Keep the steps that the optimizer has made so far; calls of `step` count after them.

        It is for a program that calls `step` only from its second stage on.
        """
        if self._session is _session:  # not yet replaced by another run
            _attempt(RankSession.begin_stage)

    def finish(self) -> None:
        """Send what has been logged so far. It ends a run that distrain has not started."""
        self._end(None)

    def __enter__(self) -> ScriptRun:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._joined is None:
            _attempt(RankSession.flush)
        elif self._joined is _joined:  # not yet replaced by another run
            _end_joined(error)


def init(
    config: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    reuse: bool = False,
) -> ScriptRun:
    """Return the run of this process, and record the settings of the program.

    If distrain has not started the program, this begins a record of it, called `name`, in the
    folder of runs; a second call ends the first record, or with `reuse` continues it. `config` is
    any mapping, such as `vars(args)`; values other than numbers and text become text. `rank` and
    `world_size` are by default those of the process group, else of the environment; `world_size`
    alone must be equal to that. A child process of a rank, e.g. a loader worker, is a rank only if
    it gives one.
    """
    with _joining:
        if _joined and not reuse:
            _end_joined(None)
        if _session is None:
            _report_problems(_join, name or "", rank, world_size)
        if config is not None:
            _attempt(RankSession.describe, config)
        return ScriptRun()


def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """Record values by name: numbers, or tensors with one element, which may be on a GPU.

    Tensors are copied on their device and read later, without synchronisation. `step` is where the
    values are drawn; by default it is the number of finished steps, or that of the calls as long as
    no step is counted.
    """
    session = _session
    if session is not None:
        try:  # not by `_attempt`, because it may be called in every step
            session.log(values, step)
        except Exception:
            problems.print_first()


def log_eval(metrics: Mapping[str, Any], samples: int, *, reduced: bool = False) -> None:
    """Record an evaluation: means of this rank over its `samples`.

    The means of all ranks are weighted by their samples. With `reduced` they are those of all ranks
    already, and rank 0's are taken.
    """
    _attempt(_log_evaluation, metrics, samples, reduced)


def step(samples: int | None = None) -> None:
    """Record that an optimizer step is finished, of this many samples on this rank.

    Without `samples` they are counted by `track`, if the batches come from there.
    """
    session = _session
    if session is not None:
        try:  # not by `_attempt`, because it may be called in every step
            session.step(None if samples is None else _read_samples(samples))
        except Exception:
            problems.print_first()


def track(loader: Iterable[Batch]) -> Iterable[Batch]:
    """Return the loader of the training data; measures the wait for each batch, counts samples.

    What it returns has the loader's length and attributes, and can be iterated as often. Each batch
    counts as a step, unless an optimizer steps or the program calls `step`.
    """
    return loader if _session is None else make_tracked(loader, _session)


def phase(name: str) -> AbstractContextManager[None]:
    """Return a context whose body is a phase of the step.

    `data`, `forward`, `backward`, `comm` and `optimizer` are shown per step; the seconds of any
    other name are logged as the curve `phase/NAME`.
    """
    if _session is None:
        return _NO_PHASE
    try:
        return NamedPhase(_session, str(name))
    except Exception:
        problems.print_first("a phase")
        return _NO_PHASE


def should_stop() -> bool:
    """Return whether the run is to stop; then save a checkpoint and leave the training loop.

    Every rank calls it once per step, at the same place: all ranks get True in the same step. Once
    it has returned True it always does.
    """
    return _session is not None and _session.should_stop()


_NO_PHASE = nullcontext()
_session: RankSession | None = None
_joined: JoinedRank | None = None
_joining = threading.RLock()  # each run that a thread begins has to end


def begin(session: RankSession, joined: JoinedRank | None = None) -> None:
    """Make this process the rank; processes that it forks are none."""
    global _session, _joined
    _session = session
    _joined = joined


def _forget() -> None:
    global _session, _joined
    _session = None
    _joined = None


def _forget_after_fork() -> None:
    global _joining
    _joining = threading.RLock()  # another thread may have held it, and does not exist here
    _forget()


os.register_at_fork(after_in_child=_forget_after_fork)


def _join(name: str, rank: int | None, world_size: int | None) -> None:
    """Make this process a rank, if it is one."""
    # Imported late: a program that distrain starts does not need it.
    from distrain.runners.instrumentation import automatic
    from distrain.runners.instrumentation.observation import join_run

    try:
        joined = join_run(name, rank, world_size, _print_problem)
    except (DistrainError, OSError) as error:
        _print_problem(f"this run is not recorded: {error}")
        return
    if joined:
        begin(joined.session, joined)
        automatic.install(joined.session)
        joined.end_at_exit(_end_joined)


def _end_joined(error: BaseException | None) -> None:
    if joined := _joined:
        from distrain.runners.instrumentation import automatic

        _report_problems(automatic.end)
        _forget()
        _report_problems(joined.end, error)


def _log_evaluation(
    session: RankSession, metrics: Mapping[str, Any], samples: Any, reduced: bool
) -> None:
    session.log_evaluation(metrics, to_samples(samples), reduced)


def _read_samples(given: Any) -> int | None:
    """Return the samples of a step; None if they are no number, as the step counts all the same."""
    try:
        return to_samples(given)
    except Exception:
        problems.print_first("the samples of a step")
        return None


def _attempt(act: Callable[..., None], *arguments: Any) -> None:
    """Call a method of the session, if there is one."""
    if _session is not None:
        _report_problems(act, _session, *arguments)


def _report_problems(act: Callable[..., None], *arguments: Any) -> None:
    """Call a function of distrain. What it raises is printed once, and ends nothing."""
    try:
        act(*arguments)
    except Exception:
        problems.print_first()


def _print_problem(text: str) -> None:
    print(f"distrain: {text}", file=sys.stderr)
