"""Target `records`: a record or bench of a stranger, read by the commands that show it.

An input is JSON: the template, and edits of its files. A command ends with an exit code, prints
nothing that controls a terminal, and leaves the record as it is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from distrain.runners import formatting, lookup
from distrain.runners.cli import main
from distrain.runners.cli.presentation import present
from distrain.runners.errors import DistrainError
from tests.fuzz.record_edits import apply_edit, changed_edit, new_edit
from tests.fuzz.templates import MAKERS, make_template

MAX_LENGTH = 1 << 16
MUTATES_BYTES = False  # an input that is no JSON would say nothing
DICTIONARY: list[str] = []
MOST_EDITS = 6
WITNESS = "witness"  # the id of the intact run that others are compared with
SUBJECT = "subject"
DOES_NOT_FIT = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError),
    sqlite3.Error,
)
OUTSIDE = "this file is not part of the record"
# What reading a database in WAL mode creates next to it.
SHARED_MEMORY = re.compile(r"metrics\.db-(shm|wal)")

COMMANDS = [("runs",), ("show", SUBJECT), ("show", SUBJECT, "--json")]
# An input gets the first of these or another one, as they take longer.
MORE_COMMANDS = [
    ("compare", SUBJECT, WITNESS),
    ("runs", "--json"),
    ("compare", SUBJECT, WITNESS, "--format", "json"),
    ("compare", SUBJECT, WITNESS, "--format", "md"),
    ("compare", SUBJECT, WITNESS, "--format", "html", "--out", "report.html"),
]
COMMANDS_OF_RUNS = [
    ("logs", SUBJECT),
    ("logs", SUBJECT, "--rank", "supervisor"),
    ("stacks", SUBJECT),
    ("export", SUBJECT, "--to", "csv"),
    ("export", SUBJECT, "--to", "csv", "--table", "logged"),
    ("export", SUBJECT, "--to", "jsonl"),
    ("export", SUBJECT, "--to", "tensorboard", "--out", "board"),
]


class _Stage:
    """A folder with a whole template of each name, and the runs folder of the current input."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="distrain-fuzz-", dir=parent)).resolve()
        (self.folder / "outside").write_text(OUTSIDE)
        os.environ["DISTRAIN_CLAIMS_DIR"] = str(self.folder / "claims")
        self.runs = self.folder / "runs"
        self._made: dict[str, Path] = {}

    def template(self, name: str) -> Path:
        if name not in self._made:
            self._made[name] = make_template(name, self.folder / "templates" / name)
            _commit_database(self._made[name])
        return self._made[name]

    def fill(self, name: str) -> Path:
        """Return a copy of a template in a runs folder with the intact run."""
        shutil.rmtree(self.runs, ignore_errors=True)
        self.runs.mkdir()
        subject = self.runs / self.template(name).name
        shutil.copytree(self.template(name), subject, symlinks=True)
        shutil.copytree(self.template("training"), self.runs / WITNESS, symlinks=True)
        return subject


def _commit_database(folder: Path) -> None:
    for path in folder.rglob("metrics.db"):
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@functools.cache
def stage() -> _Stage:
    return _Stage()


def prepare() -> None:
    warnings.simplefilter("error")  # they would be printed
    for name in MAKERS:
        stage().template(name)


def close() -> None:
    shutil.rmtree(stage().folder, ignore_errors=True)


def check(data: bytes) -> None:
    try:
        given = json.loads(data)
        name, edits = given["template"], given["edits"]
    except (ValueError, KeyError, TypeError):
        return
    subject = stage().fill(name)
    for edit in edits:
        with contextlib.suppress(*DOES_NOT_FIT):
            apply_edit(subject, edit)
    before = _content(stage().runs)
    for command in _commands(subject, zlib.crc32(data), name == "live"):
        _execute([subject.name if word == SUBJECT else word for word in command])
        assert _content(stage().runs) == before, f"{' '.join(command)} changes the record"
    _view(subject)
    assert _content(stage().runs) == before, "watching changes the record"


# --- reading --------------------------------------------------------------------------------------


def _commands(subject: Path, number: int, is_live: bool) -> Iterator[tuple[str, ...]]:
    yield from COMMANDS
    is_bench = os.path.lexists(subject / "bench.json")
    other = MORE_COMMANDS[number // 2 % len(MORE_COMMANDS) if number % 2 else 0]
    yield tuple(word for word in other if not (is_bench and word == WITNESS))
    if not is_bench:
        command = COMMANDS_OF_RUNS[number % len(COMMANDS_OF_RUNS)]
        if command[0] != "stacks" or not is_live:  # it would ask the ranks
            yield command


def _execute(command: Sequence[str]) -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    words = [*command, "--runs-dir", str(stage().runs)]
    words = [
        str(stage().folder / word) if word in ("report.html", "board") else word for word in words
    ]
    shutil.rmtree(stage().folder / "board", ignore_errors=True)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as error:
        raise AssertionError(f"{' '.join(command)} is not understood") from error
    finally:
        gc.unfreeze()  # `runs` is made for a process that ends with it
    assert code in (0, 1, 2), f"exit code {code}"
    for stream in (out, err):
        stream.flush()
        _require_printable(stream.buffer.getvalue().decode(), command[0])
    if "--json" in command and code == 0:
        json.loads(out.buffer.getvalue())


def _view(subject: Path) -> None:
    """Show what `watch` shows first, as lines and on a terminal."""
    out = io.StringIO()
    try:
        session = lookup.find(str(subject))
        presentation = present(session)
        for stream in (out, _Terminal()):
            view = presentation.view(stream, 0.0, stream)
            try:
                view.update()
            finally:
                view.close()
        presentation.describe_stop(False)
        presentation.notices()
    except DistrainError:
        return
    _require_printable(out.getvalue(), "watch")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _require_printable(text: str, command: str) -> None:
    assert OUTSIDE not in text, f"{command} follows a link"
    if command in ("logs", "watch"):  # of what a script prints, colours stay
        text = formatting.COLOUR.sub("", text)
    text = re.sub(r"\r?\n|\t", "", text)
    found = formatting._NOT_PRINTABLE.search(text)
    assert not found, f"{command} prints {found and found[0]!a}"


def _content(folder: Path) -> dict[str, Any]:
    """Return what distinguishes each file below a folder."""
    found: dict[str, Any] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            about = os.lstat(path)
            if not SHARED_MEMORY.fullmatch(name):
                size = 0 if name in folders else about.st_size
                stamp = 0 if name in folders else about.st_mtime_ns
                found[path] = (about.st_mode, size, stamp)
    return found


# --- inputs ---------------------------------------------------------------------------------------


def seeds() -> list[bytes]:
    return [_input(name, []) for name in MAKERS]


def _input(name: str, edits: Sequence[Any]) -> bytes:
    return json.dumps({"template": name, "edits": edits}).encode()


def mutate(data: bytes, random: Random) -> bytes:
    """Return the input with an edit more, an edit less, or an edit changed."""
    try:
        given = json.loads(data)
        name, edits = given["template"], given["edits"]
    except (ValueError, KeyError, TypeError):
        name, edits = random.choice([*MAKERS]), []
    chance = random.random()
    if edits and (chance < 0.15 or len(edits) >= MOST_EDITS):
        del edits[random.randrange(len(edits))]
    elif edits and chance < 0.4:
        index = random.randrange(len(edits))
        edits[index] = changed_edit(stage().template(name), edits[index], random)
    else:
        edits.append(new_edit(stage().template(name), random))
    return _input(name, edits)
