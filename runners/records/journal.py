"""The journal: the file in which a job records its run when it cannot reach the run's own host.

The job's first node writes it on the shared file system. The run's supervisor reads it as it
grows, or much later, and adds it to the record. Each line is one entry in JSON, complete once it
ends with a newline.
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

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import Event, Message, Notice, decode, encode
from distrain.runners.records.run_folder import JOURNAL
from distrain.runners.records.state import RunState, read_state
from distrain.runners.records.timeseries.series import SERIES
from distrain.runners.records.writer import Item
from distrain.runners.system.files import open_regular

# The fields of run.json that only the job knows; the others follow from the events.
STATE_FIELDS = ("hosts", "provenance", "stall", "stall_ended")
_SERIES_NAMES = {series.kind: series.name for series in SERIES}
_SAMPLE_TYPES = {name: kind for kind, name in _SERIES_NAMES.items()}
_FIELD_TYPES = {field.name: field.type for field in structs.fields(RunState)}


class _Entry(msgspec.Struct):
    """`kind` is "event", "state", or the name of a series."""

    kind: str
    body: msgspec.Raw


class JournalWriter:
    """Writes a journal, with the methods of a RecordWriter. What is not committed is lost.

    An incomplete last line, left by an earlier writer on a full disk or in a power failure, stays
    a line of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        # The job runs now, also where run.json still has it in the queue.
        self.state: RunState = structs.replace(read_state(folder), status="running")
        self._file = (folder / JOURNAL).open("a+b", buffering=0)
        self._pending = bytearray(b"\n" if self._ends_within_line() else b"")

    def _ends_within_line(self) -> bool:
        if not self._file.seek(0, os.SEEK_END):
            return False
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1) != b"\n"

    def add(self, item: Item) -> None:
        """Keep an event or a sample for the next commit."""
        if isinstance(item, Event):
            self._add_entry("event", encode(item))
        else:
            self._add_entry(_SERIES_NAMES[type(item)], msgspec.json.encode(item))

    def set_state(self, **changes: Any) -> RunState:
        """Change the state in this process, and add those of STATE_FIELDS to the journal."""
        self.state = structs.replace(self.state, **changes)
        stored = {name: value for name, value in changes.items() if name in STATE_FIELDS}
        if stored:
            self._add_entry("state", msgspec.json.encode(stored))
        return self.state

    def _add_entry(self, kind: str, body: bytes) -> None:
        entry = _Entry(kind=kind, body=msgspec.Raw(body.rstrip(b"\n")))
        self._pending += msgspec.json.encode(entry) + b"\n"

    @property
    def pending(self) -> int:
        """How many bytes the next commit will write."""
        return len(self._pending)

    def commit(self) -> None:
        """Append what was added.

        Raises DistrainError when the disk refuses; what it did not accept is kept for the next
        try.
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


class JournalReader:
    """Reads a journal while it grows, each entry once. `entries_read` counts them."""

    def __init__(self, folder: Path) -> None:
        self.entries_read = 0
        self._path = folder / JOURNAL
        self._position = 0
        self._reported_damage = False

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read_new(self) -> Iterator[Item | dict[str, Any]]:
        """Yield new entries in order: events, samples, and changes of the state as dicts.

        An incomplete last line waits for the next call. A Notice replaces the first damaged line;
        further ones are skipped. While the file system does not answer, there are no entries.
        """
        with suppress(OSError), open_regular(self._path) as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                item = self._decode(line)
                if item is not None:
                    self.entries_read += 1
                    yield item

    def _decode(self, line: bytes) -> Message | Item | dict[str, Any] | None:
        try:
            return _decode_entry(line)
        except (msgspec.MsgspecError, KeyError, RecursionError):
            if self._reported_damage:
                return None
            self._reported_damage = True
            text = f"the job could not write all of {JOURNAL}: what it recorded then is missing"
            return Notice(time=time.time(), text=text)


def _decode_entry(line: bytes) -> Message | Item | dict[str, Any]:
    entry = msgspec.json.decode(line, type=_Entry)
    if entry.kind == "event":
        return decode(memoryview(entry.body))
    if entry.kind == "state":
        changes: dict[str, Any] = msgspec.json.decode(entry.body)
        return {name: msgspec.convert(value, _FIELD_TYPES[name]) for name, value in changes.items()}
    return msgspec.json.decode(entry.body, type=_SAMPLE_TYPES[entry.kind])  # type: ignore[no-any-return]
