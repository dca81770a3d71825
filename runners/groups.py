"""Groups of runs that were launched together: the runs of a sweep.

A group is no file of its own: each run's record names the group that it belongs to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from distrain.runners import formatting
from distrain.runners.checks import check
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sweep import Axis, SweepRun, combine
from distrain.runners.errors import DistrainError, RunNotFoundError
from distrain.runners.records.run_ids import new_run_id, short_id, word_of
from distrain.runners.runs import Run, all_runs, launch
from distrain.runners.session import POLL_S, runs_folder

# The status of a group is the first of these that one of its runs has.
_STATUSES = ("stopping", "running", "starting", "queued", "failed", "stopped", "completed")
_STOPPED_AT_ONCE = 32
_LISTENS_S = 30.0  # from the making of a record until its supervisor listens


class Group:
    """Runs of one group, oldest first. It stays valid when the program that launched it exits."""

    kind: ClassVar[Literal["group"]] = "group"

    def __init__(self, id: str, runs: Sequence[Run]) -> None:
        self.id = id
        self._runs = runs

    @property
    def runs(self) -> list[Run]:
        """Those that nobody has removed since. Raises DistrainError where none is left."""
        if left := [run for run in self._runs if run.dir.exists()]:
            return left
        raise DistrainError(f"all runs of group {self.id} were removed")

    @property
    def name(self) -> str:
        """The word in its id: "ddp-sweep"."""
        return word_of(self.id)

    @property
    def status(self) -> str:
        statuses = {run.status for run in self.runs}
        return next((status for status in _STATUSES if status in statuses), "completed")

    @property
    def reason(self) -> str:
        """How many runs have which status: "3 of 4 runs completed, 1 failed"."""
        statuses = [run.status for run in self.runs]
        counts = {status: statuses.count(status) for status in reversed(_STATUSES)}
        first, *others = [f"{n} {status}" for status, n in counts.items() if n]
        runs = formatting.plural(len(self.runs), "run")
        number, _, status = first.partition(" ")
        return ", ".join([f"{number} of {runs} {status}", *others])

    @property
    def is_live(self) -> bool:
        return any(run.is_live for run in self.runs)

    def live_configs(self) -> list[RunConfig]:
        """Return the configs of the live runs, without those that cannot be read."""
        configs = []
        for run in self.runs:
            if run.is_live:
                with suppress(DistrainError):
                    configs.append(run.record.config)
        return configs

    def recover(self) -> bool:
        """Recover every run that needs it; return whether there was one. Raises DistrainError."""
        recovered = [run.recover() for run in self.runs]  # all of them
        return any(recovered)

    def attend(self) -> bool:
        """Recover runs if needed, and return whether one is live."""
        return self.recover() or self.is_live

    def stop(self, now: bool = False) -> None:
        """Stop all live runs; those in the queue first, so that none of them starts.

        A group that is still being launched gets no more runs; those that it got meanwhile are
        stopped too. Raises DistrainError if the group has ended, or for a run that cannot be
        stopped, after all others were.
        """
        live = [run for run in self.runs if run.is_live]
        if not live:
            raise DistrainError(f"group {self.id} has ended: {self.reason}")
        problems = []
        while live:
            queued = [run for run in live if run.status == "queued"]
            others = [run for run in live if run not in queued]
            problems += [*_stop_all(queued, now), *_stop_all(others, now)]
            added = self._find_added()
            self._runs = [*self._runs, *added]
            live = [run for run in added if run.is_live]
        if problems:
            raise DistrainError("\n".join(problems))

    def _find_added(self) -> list[Run]:
        """Return the runs that the group has got since this object was made."""
        known = {run.id for run in self._runs}
        members = (run for run in all_runs(self._runs[0].runs_dir) if run.group == self.id)
        return [run for run in members if run.id not in known]

    def trust(self) -> None:
        """Trust the code that the configs of its runs name, from now on."""
        for run in self.runs:
            run.trust()


def _stop_all(runs: Sequence[Run], now: bool) -> list[str]:
    """Stop runs at the same time, as one may not answer; return why some cannot be stopped.

    One that is being launched is stopped as soon as it listens.
    """
    deadline = time.monotonic() + _LISTENS_S

    def stop(run: Run) -> str:
        while True:
            try:
                run.stop(now)
            except DistrainError as error:
                if not run.is_live:
                    return ""
                if not run.is_starting or time.monotonic() > deadline:
                    return str(error)
                time.sleep(POLL_S)
            else:
                return ""

    if not runs:
        return []
    with ThreadPoolExecutor(min(len(runs), _STOPPED_AT_ONCE)) as pool:
        return [problem for problem in pool.map(stop, runs) if problem]


def launch_sweep(
    config: RunConfig,
    values: Mapping[str, Iterable[Any]],
    *,
    name: str = "sweep",
    runs_dir: str | os.PathLike[str] | None = None,
    cwd: str | None = None,
) -> Group:
    """Queue a run for each combination of the values of dotted keys, as one group.

    launch_sweep(load_preset("ddp"), {"train.lr": [0.1, 0.05]}) queues two runs. Raises ConfigError
    with the problems of all runs before any is started; else as `launch`, and then no run remains.
    """
    axes = [Axis.of(key, each) for key, each in values.items()]
    runs = combine(config, axes, lambda each: check(each, cwd))
    return launch_group(runs, name, runs_dir=runs_dir, cwd=cwd)


def launch_group(
    runs: Sequence[SweepRun],
    word: str,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    cwd: str | None = None,
    command: list[str] | None = None,
    on_launched: Callable[[Run], None] = lambda run: None,
) -> Group:
    """Queue the runs in this order as one group, whose id contains `word`.

    If one cannot be launched, or `on_launched` raises, the runs before it are stopped. Raises
    DistrainError if somebody has stopped them all meanwhile, as `Group.stop` does.
    """
    group = new_run_id(word)
    launched: list[Run] = []
    try:
        for name, config in runs:
            run = launch(
                config,
                name=name,
                runs_dir=runs_dir,
                cwd=cwd,
                command=command,
                group=group,
                queue=True,
            )
            launched.append(run)
            on_launched(run)
            if _are_stopped(launched[:-1]):
                count = f"{len(launched)} of {formatting.plural(len(runs), 'run')}"
                raise DistrainError(f"group {group} was stopped after {count} had been launched")
    except BaseException:
        for run in reversed(launched):
            with suppress(DistrainError):
                if run.status != "stopping":
                    run.stop()
        raise
    return Group(group, launched)


def _are_stopped(runs: Sequence[Run]) -> bool:
    """Return whether somebody has stopped the last of these runs, and none is left to stop."""
    if not runs or runs[-1].status not in ("stopping", "stopped"):
        return False
    return not any(run.is_live and run.status != "stopping" for run in runs)


def all_groups(runs_dir: str | os.PathLike[str] | None = None) -> list[Group]:
    """Return every group in the runs folder, oldest first."""
    members: dict[str, list[Run]] = {}
    for run in all_runs(runs_dir):
        if run.group:
            members.setdefault(run.group, []).append(run)
    groups = [Group(id, runs) for id, runs in members.items()]
    return sorted(groups, key=lambda group: group.runs[0].created)


def find_group(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Group:
    """Return the group of this id, unique beginning of an id, or name; the newest of a name.

    Raises RunNotFoundError.
    """
    groups = {group.id: group for group in all_groups(runs_dir)}
    return groups[choose_group(wanted, [*groups], runs_folder(runs_dir))]


def choose_group(wanted: str, ids: Sequence[str], runs_dir: Path) -> str:
    """Return the id that `find_group` means, of those of all groups, oldest first."""
    for id in reversed(ids):
        if wanted in (id, short_id(id), word_of(id)):
            return id
    matches = [id for id in ids if wanted and id.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunNotFoundError(f"{wanted!r} is ambiguous; it matches {', '.join(matches)}")
    raise RunNotFoundError(f"no group {wanted!r} in {runs_dir}; `distrain runs` lists all runs")
