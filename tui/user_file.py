"""TOML files of the app in the config folder, which several apps may change at the same time."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from distrain.runners.system.files import (
    free_name,
    lock_within,
    read_regular,
    write_atomically,
)
from distrain.runners.system.home_folders import config_folder

T = TypeVar("T")
Table = dict[str, Any]
LOCK_S = 1.0  # for another app to have written
DAMAGE = (ValueError, RecursionError, msgspec.ValidationError)


class UserFile(Generic[T]):
    """A file `name` whose content has the type `kind`.

    Nothing of a file that cannot be understood is lost: it gets a name of its own before another
    one is written.
    """

    def __init__(self, name: str, kind: type[T]) -> None:
        self.name = name
        self.kind = kind

    @property
    def path(self) -> Path:
        return config_folder() / self.name

    @property
    def _target(self) -> Path:
        """The file itself: a person may keep it elsewhere, with a link to it here."""
        return Path(os.path.realpath(self.path))

    def read(self) -> tuple[Table, T]:
        """Return the table in the file, and the same as `kind`. Raises OSError or DAMAGE."""
        table = tomllib.loads(read_regular(self._target).decode())
        return table, msgspec.convert(table, self.kind)

    def read_or_keep(self, default: T) -> tuple[T, str]:
        """Return the content, or `default` where there is no file that can be read.

        The text is what the user has to know, once: under which name a damaged file was kept.
        """
        try:
            return self.read()[1], ""
        except OSError:
            return default, ""
        except DAMAGE:
            with suppress(OSError), _locked(self.path.parent):
                return default, self._read_or_rename()[1]
            return default, ""

    def change(self, change: Callable[[Table, bool], None]) -> str:
        """Change the table in the file; return what the user has to know, as `read_or_keep` does.

        `change` gets the table, and whether it is a new one. Raises OSError.
        """
        import tomli_w  # not needed to read

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.parent):
            found, kept = self._read_or_rename()
            table = {} if found is None else found
            change(table, found is None)
            # Not durable: a key press must not wait for the disk.
            write_atomically(self._target, tomli_w.dumps(table).encode(), durable=False)
        return kept

    def _read_or_rename(self) -> tuple[Table | None, str]:
        """Return the table in the file, if there is one, and the name that a damaged file got."""
        try:
            return self.read()[0], ""
        except FileNotFoundError:
            return None, ""
        except DAMAGE:
            kept = free_name(self.path, "damaged")
            self.path.rename(kept)
            notice = f"{self.path} was damaged and begins empty; the old file is {kept.name}"
            return None, notice


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other apps from changing files in a folder; one that is suspended is not waited for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # not every file system has locks: NFS has none for a folder
            lock_within(descriptor, LOCK_S)
        yield
    finally:
        os.close(descriptor)
