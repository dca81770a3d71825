"""meta.json: the name, notes, tags and pin that people give a run.

Viewers write it, the run itself never does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.errors import ConfigError, DistrainError, RunsFolderError
from distrain.runners.records.state import not_a_record
from distrain.runners.records.untrusted import decode
from distrain.runners.system.files import lock_within, open_regular, read_regular, write_json

LOCK_S = 5.0  # longest wait for other writers
# Files of runs and benches that are never replaced. The folder is locked by its supervisor.
LOCKED = ("config.toml", "bench.toml")


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The content of meta.json."""

    name: str = ""
    notes: str = ""
    tags: list[str] = []
    pinned: bool = False


def read_meta(folder: Path) -> Meta:
    """Return meta.json, or an empty Meta where it is missing or broken: a run must still open."""
    try:
        return read_valid_meta(folder)
    except DistrainError:
        return Meta()


def read_valid_meta(folder: Path) -> Meta:
    """Return meta.json with printable text only, or an empty Meta where there is none.

    Raises DistrainError where it is broken or cannot be read.
    """
    path = f"{folder}/meta.json"
    try:
        meta = decode(read_regular(path), Meta)
    except FileNotFoundError:
        return Meta()
    except OSError as error:
        raise DistrainError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise DistrainError(f"{path} is broken: fix or remove it, it is not replaced") from None
    # Notes have other line breaks than \n too, and no tabs.
    notes = "\n".join(map(formatting.printable, meta.notes.splitlines()))
    return msgspec.structs.replace(meta, notes=notes)


def check_printable(*texts: str) -> None:
    """Raise ConfigError for a text with line breaks or terminal control characters."""
    for text in texts:
        if formatting.has_control_characters(text):
            raise ConfigError(f"a name, note or tag must be printable text, not {text!r}")


def write_meta(folder: Path, meta: Meta) -> None:
    """Write meta.json atomically.

    Raises ConfigError for a value of another type and text that is not printable, and OSError.
    """
    try:  # a file of other types could not be read again
        msgspec.convert(msgspec.to_builtins(meta), Meta)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"this cannot be written to meta.json: {error}") from None
    check_printable(meta.name, *meta.notes.splitlines(), *meta.tags)
    write_json(folder / "meta.json", _unknown_fields(folder) | msgspec.structs.asdict(meta))


def _unknown_fields(folder: Path) -> dict[str, msgspec.Raw]:
    """Return the fields of meta.json that only a newer version knows; they are kept."""
    try:
        text = read_regular(folder / "meta.json")
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except FileNotFoundError:
        return {}
    known = Meta.__struct_fields__
    return {name: value for name, value in fields.items() if name not in known}


def change_meta(folder: Path, **changes: Any) -> Meta:
    """Change fields of meta.json and return it.

    Raises DistrainError where it is broken, so that nothing in it is lost, and where the folder is
    not there any more; ConfigError for text that is not printable; RunsFolderError where it cannot
    be written.
    """
    try:
        with _lock(folder):
            meta = msgspec.structs.replace(read_valid_meta(folder), **changes)
            write_meta(folder, meta)
    except FileNotFoundError as error:
        raise not_a_record(folder, error.strerror) from None
    except OSError as error:
        raise RunsFolderError(f"cannot write to {folder}: {error.strerror}") from None
    return meta


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let writers in one after another, so that each keeps what the others changed.

    Whoever may read a record can hold the lock, so nobody waits forever; some file systems have
    none.
    """
    with contextlib.ExitStack() as stack:
        for name in LOCKED:
            with contextlib.suppress(OSError):
                lock_within(stack.enter_context(open_regular(folder / name)).fileno(), LOCK_S)
                break
        yield
