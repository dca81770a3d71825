"""What runs and benches have in common, and how one is chosen by name.

A session is a folder of records and the processes that work on it. The command line and the app
act on sessions, so that a command works on runs and benches alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from distrain.runners.errors import FOLDER_DELETED, RunNotFoundError, RunsFolderError
from distrain.runners.records.meta import Meta

if TYPE_CHECKING:  # not loaded to list runs
    from distrain.runners.config.schema import RunConfig

POLL_S = 0.1  # between two looks at whether a session has ended


class Followed(Protocol):
    """What can be followed to its end and stopped: a run, a bench, or a group of runs."""

    @property
    def kind(self) -> Literal["run", "bench", "group"]: ...

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str:
        """ "running", "completed", …"""

    @property
    def reason(self) -> str:
        """Why it has this status, or an empty string."""

    @property
    def is_live(self) -> bool:
        """Whether it is queued, starting, running or stopping."""

    def recover(self) -> bool:
        """Supervise it again if it lost its supervisor while its Slurm job continues.

        Return whether a new supervisor was started. Raises DistrainError if it does not start.
        """

    def attend(self) -> bool:
        """Recover it if needed, and return whether it is live."""

    def stop(self, now: bool = False) -> None:
        """Ask it to stop and return; with `now`, runs stop without a checkpoint.

        Raises DistrainError if it has ended.
        """

    def trust(self) -> None:
        """Trust the code that the configs name, from now on."""


class Session(Followed, Protocol):
    """A run or a bench, live or ended. It stays valid when the program that started it exits."""

    @property
    def kind(self) -> Literal["run", "bench"]: ...

    @property
    def dir(self) -> Path:
        """The folder of the session."""

    @property
    def runs_dir(self) -> Path:
        """The folder of all runs, in which a rerun is recorded too."""

    @property
    def name(self) -> str:
        """The name that a person gave, or an empty string."""

    @property
    def created(self) -> float:
        """The time of its start in Unix seconds."""

    @property
    def meta(self) -> Meta:
        """Name, notes, tags and pin, as people edit them."""

    @property
    def launched_from(self) -> str | None:
        """The folder that relative paths in its configs start from; None for the current one.

        Raises DistrainError if it cannot be rerun because this folder no longer exists.
        """

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned. Raises DistrainError."""

    def wait(self) -> object:
        """Wait until the session has ended."""

    def remove(self) -> Path:
        """Move the folder to the trash and return its new path. Raises DistrainError if live."""

    def rerun(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Session:
        """Start a new session with the same configs, changed by dotted keys.

        With `queue` it waits for its devices; None means as before for a bench, no for a run.
        Raises ConfigError or DistrainError.
        """

    def resume(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Session:
        """Continue the session, from a run's last checkpoint or with a bench's next round.

        The parameters are those of `rerun`; a bench takes no changes and no name. Raises
        ConfigError or DistrainError.
        """

    def untrusted_code(self) -> Sequence[str]:
        """Return what `rerun` and `resume` would execute that the user has not trusted yet.

        These are printable lines; while there are any, both raise UntrustedError.
        """

    def rerun_configs(self) -> Sequence[RunConfig]:
        """Return the configs that `rerun` would train."""

    def resume_configs(self) -> Sequence[RunConfig]:
        """Return the configs that `resume` would train. Raises DistrainError or ConfigError if
        the session cannot be resumed.
        """


def folders_of(wanted: str, runs_dir: Path, file: str) -> Iterator[Path]:
    """Yield the folders that contain `file`, of the path `wanted` and of this id in `runs_dir`."""
    folders = []
    if os.sep in wanted:
        folders.append(Path(wanted))
    if wanted:
        folders.append(runs_dir / wanted)
    for folder in folders:
        if os.path.lexists(folder / file):  # also what cannot be read, so that a sentence says so
            yield folder


def runs_folder(given: str | os.PathLike[str] | None = None, cwd: str | None = None) -> Path:
    """Return the folder of all runs: `given`, else $DISTRAIN_RUNS_DIR, else `runs`.

    A relative one starts from `cwd`, by default the current folder. Raises RunsFolderError if the
    current folder no longer exists, or the folder cannot exist or is a link to one that does not.
    """
    folder = given or os.environ.get("DISTRAIN_RUNS_DIR") or "runs"
    try:
        path = Path(cwd or "", folder).absolute()
    except FileNotFoundError:
        raise RunsFolderError(FOLDER_DELETED) from None
    try:
        if path.is_symlink() and not path.exists():  # as of a disk that is not mounted
            target = os.readlink(path)
            raise RunsFolderError(f"{path} is a link to {target}, which does not exist")
    except OSError as error:  # its name is too long
        raise RunsFolderError(f"{path}: {error.strerror}") from None
    return path


SomeSession = TypeVar("SomeSession", bound=Session)


def choose(
    wanted: str, sessions: Sequence[SomeSession], runs_dir: Path, noun: str = "run"
) -> SomeSession:
    """Return the session with this id, unique prefix of an id, or name; `latest` is the last one.

    `sessions` are ordered from oldest to newest; of several with one name the newest is returned.
    `noun` is what messages call a session. Raises RunNotFoundError.
    """
    if not wanted:
        raise RunNotFoundError(
            f"no {noun} was given: use an id, the unique beginning of one, a name, or latest"
        )
    if not sessions:
        raise RunNotFoundError(f"there is no {noun} in {runs_dir}")
    if wanted == "latest":
        return sessions[-1]
    exact = [session for session in sessions if wanted in (session.id, session.name)]
    if exact:
        return exact[-1]
    matches = [session for session in sessions if session.id.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(session.id for session in matches)
        raise RunNotFoundError(f"{wanted!r} is ambiguous; it matches {ids}")
    raise RunNotFoundError(f"no {noun} {wanted!r} in {runs_dir}; `distrain runs` lists all")
