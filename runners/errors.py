"""Errors that are shown to users: one sentence each, without a traceback, and an exit code.

    DistrainError            exit 1
    ├── ConfigError          exit 2   a preset, an argument or a combination of both is invalid
    ├── InstallError         exit 1   an installation failed
    ├── RunNotFoundError     exit 2   no run has that id, prefix or name
    ├── RunsFolderError      exit 2   the runs folder cannot be read or written
    ├── SlurmError           exit 1   Slurm is missing, does not respond, or refuses
    └── UntrustedError       exit 2   a record names code that the user has not trusted

Any other exception that is not caught is a bug in distrain and is shown with its traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from distrain.runners import formatting


class DistrainError(Exception):
    """An error to show to a user: `title` is that of a dialog, `str()` the sentence.

    The sentence is printable, also where it quotes a file that nobody has checked.
    """

    title = "distrain failed"
    exit_code = 1

    def __init__(self, text: str = "") -> None:
        super().__init__(formatting.shortened(formatting.printable_lines(text)))


UNKNOWN_KEY = "unknown key"


class ConfigError(DistrainError):
    """All problems of a configuration at once.

    `problems` are pairs of a dotted key (empty where none applies) and one sentence.
    """

    title = "This configuration cannot run"
    exit_code = 2

    def __init__(self, problems: Iterable[tuple[str, str]] | str) -> None:
        given = [("", problems)] if isinstance(problems, str) else problems
        pairs = [
            (
                formatting.shortened(formatting.printable(key)),
                formatting.shortened(formatting.printable_lines(text)),
            )
            for key, text in given
        ]
        self.problems: list[tuple[str, str]] = pairs
        super().__init__("\n".join(f"{key}: {text}" if key else text for key, text in pairs))

    @property
    def has_only_unknown_keys(self) -> bool:
        return all(text.startswith(UNKNOWN_KEY) for _, text in self.problems)


class InstallError(DistrainError):
    title = "The installation failed"


class RunNotFoundError(DistrainError):
    title = "No such run"
    exit_code = 2


FOLDER_DELETED = "the current folder has been deleted; go to another"


def is_current_folder_deleted() -> bool:
    """Return whether the current folder no longer exists, which many calls do not expect."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


class RunsFolderError(DistrainError):
    title = "The runs folder cannot be used"
    exit_code = 2


class SlurmError(DistrainError):
    title = "Slurm refused"


class UntrustedError(DistrainError):
    title = "This code is not trusted"
    exit_code = 2
