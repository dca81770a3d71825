"""What can go wrong and is a user's business: one family, one sentence each, an exit code.

    DistrainError            exit 1
    ├── ConfigError          exit 2   a preset, an argument or a combination that cannot run
    ├── InstallError         exit 1   what was to be installed could not be
    ├── RunNotFoundError     exit 2   no run of that id, prefix or name
    ├── RunsFolderError      exit 2   the runs folder cannot be read or written
    └── SlurmError           exit 1   Slurm is not here, does not answer, or refuses

Anything else that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.errors import nearest

__all__ = [
    "ConfigError",
    "DistrainError",
    "InstallError",
    "RunNotFoundError",
    "RunsFolderError",
    "SlurmError",
    "nearest",
]


class DistrainError(Exception):
    """An error to show to a person: `title` heads a dialog, `str()` is the sentence."""

    title = "distrain failed"
    exit_code = 1


class ConfigError(DistrainError):
    """Every problem of a configuration at once.

    `problems` pairs the dotted key (empty where none applies) with one sentence.
    """

    title = "This configuration cannot run"
    exit_code = 2

    def __init__(self, problems: Iterable[tuple[str, str]] | str) -> None:
        pairs = [("", problems)] if isinstance(problems, str) else list(problems)
        self.problems: list[tuple[str, str]] = pairs
        super().__init__("\n".join(f"{key}: {text}" if key else text for key, text in pairs))


class InstallError(DistrainError):
    title = "The installation failed"


class RunNotFoundError(DistrainError):
    title = "No such run"
    exit_code = 2


class RunsFolderError(DistrainError):
    title = "The runs folder cannot be used"
    exit_code = 2


class SlurmError(DistrainError):
    title = "Slurm refused"
