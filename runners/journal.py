"""A run's words in a file: how a job is recorded whose nodes do not reach the run's own host.

The job's first node keeps the journal on the shared file system; the run's supervisor reads it as
it grows, or much later, and puts it into the record. Each line is an entry of its own, whole once
its newline is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from runners.errors import DistrainError
from runners.events import Event, Notice, Said, decode, encode
from runners.series import SERIES
from runners.state import JOURNAL, RunState, read_state
from runners.writer import Item

KEPT = ("hosts", "provenance")  # of run.json; the rest follows from the events
_SAMPLES = {series.kind: series.name for series in SERIES}
_KINDS = {name: kind for kind, name in _SAMPLES.items()}
_TYPES = {field.name: field.type for field in structs.fields(RunState)}


class Entry(msgspec.Struct):
    """`kind` is "event", a series' name, or "state"."""

    kind: str
    body: msgspec.Raw


class Journal:
    """Writes one, with the face of a RecordWriter; what is not committed is lost.

    What an earlier one has left unfinished, on a full disk or without power, stays a line of its
    own.
    """

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        # Whoever writes one runs, whatever the queue's last word was.
        self.state: RunState = structs.replace(read_state(folder), status="running")
        self._file = (folder / JOURNAL).open("a+b", buffering=0)
        self._pending = bytearray(b"\n" if self._torn() else b"")

    def _torn(self) -> bool:
        if not self._file.seek(0, os.SEEK_END):
            return False
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1) != b"\n"

    def add(self, item: Item) -> None:
        if isinstance(item, Event):
            self._write("event", encode(item))
        else:
            self._write(_SAMPLES[type(item)], msgspec.json.encode(item))

    def set_state(self, **changes: Any) -> RunState:
        """Kept for this process; in the file only what nobody else could know."""
        self.state = structs.replace(self.state, **changes)
        if kept := {name: value for name, value in changes.items() if name in KEPT}:
            self._write("state", msgspec.json.encode(kept))
        return self.state

    def _write(self, kind: str, body: bytes) -> None:
        entry = Entry(kind=kind, body=msgspec.Raw(body.rstrip(b"\n")))
        self._pending += msgspec.json.encode(entry) + b"\n"

    @property
    def waiting(self) -> int:
        """How many bytes the next commit will write."""
        return len(self._pending)

    def commit(self) -> None:
        """Append what was added. Raises DistrainError where the disk refuses; what it did not take
        is kept for the next try.
        """
        while self._pending:
            try:
                written = self._file.write(self._pending)
            except OSError as error:
                raise DistrainError(f"{self._file.name}: {error.strerror}") from None
            del self._pending[:written]

    def close(self) -> None:
        try:
            self.commit()
        finally:
            self._file.close()


class Reader:
    """Reads a journal from its beginning, again and again; what is read once is not read twice.

    `entries` is how many were read.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._at, self.entries = folder / JOURNAL, 0, 0
        self._told = False

    @property
    def there(self) -> bool:
        return self._path.exists()

    def news(self) -> Iterator[Item | dict[str, Any]]:
        """Events and samples in order, and changes of the state; none of a line not yet whole.

        A Notice stands for the first line that is damaged, nothing for others. Where the file
        system does not answer, there are none for now.
        """
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                for item in self._entries(line):
                    self.entries += 1
                    yield item

    def _entries(self, line: bytes) -> Iterator[Said | Item | dict[str, Any]]:
        """What a line tells; of all that is damaged one notice."""
        try:
            yield _read(line)
        except (msgspec.MsgspecError, KeyError, RecursionError):
            if not self._told:
                self._told = True
                text = f"the job could not write all of {JOURNAL}: what it recorded then is missing"
                yield Notice(time=time.time(), text=text)


def _read(line: bytes) -> Said | Item | dict[str, Any]:
    entry = msgspec.json.decode(line, type=Entry)
    if entry.kind == "event":
        return decode(memoryview(entry.body))
    if entry.kind == "state":
        changes: dict[str, Any] = msgspec.json.decode(entry.body)
        return {name: msgspec.convert(value, _TYPES[name]) for name, value in changes.items()}
    return msgspec.json.decode(entry.body, type=_KINDS[entry.kind])  # type: ignore[no-any-return]
