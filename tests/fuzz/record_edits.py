"""Edits of the files of a record, as the target `records` makes them. They are JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sqlite3
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.fuzz.mutations import (
    HOSTILE_TEXTS,
    apply_change,
    changed,
    hostile_value,
    new_change,
)

STATEMENTS = (
    "DROP TABLE steps",
    "DROP TABLE events",
    "DELETE FROM ranks",
    "DELETE FROM steps_rollup",
    "DELETE FROM steps WHERE seq % 2",
    "UPDATE steps SET seq = seq + 1000",
    "UPDATE steps_rollup SET level = level + 1",
    "ALTER TABLE steps RENAME COLUMN loss_sum TO other",
    "ALTER TABLE events DROP COLUMN kind",
    "ALTER TABLE steps ADD COLUMN more",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE gpu_extra (a)",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA user_version = 7",
    "PRAGMA application_id = 7",
    "UPDATE sqlite_master SET sql = 'CREATE TABLE steps (a)' WHERE name = 'steps'",
    "UPDATE sqlite_master SET rootpage = 2",
    "INSERT INTO curves SELECT id + 7, name, rank FROM curves",
)
# Where links lead that replace a file: to a file that no command may read, and to others.
TARGETS = ("../../outside", "../../../outside", "/dev/zero", "run.json", ".")

NEW_NAMES = ("x\x1b[31m", "rank-999999999.log", "y")
KEYS = ("rank", "seq", "level", "id", "gpu", "curve", "host")  # columns of primary keys


def apply_edit(subject: Path, edit: dict[str, Any]) -> None:
    """Change a file of the copy. Raises an error of any kind where the edit does not fit."""
    path = subject / edit["file"]
    if os.path.realpath(path) != str(path) or not (path.is_file() or path.is_dir()):
        raise FileNotFoundError(path)  # an earlier edit has made it a link or a pipe: not followed
    match edit["do"]:
        case "bytes":
            old = path.read_bytes()
            at = edit["at"] % (len(old) + 1)
            path.write_bytes(old[:at] + edit["put"].encode("latin-1") + old[at + edit["drop"] :])
        case "cut":
            os.truncate(path, edit["at"] % (path.stat().st_size + 1))
        case "remove":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        case "replace":
            path.unlink(missing_ok=True)
            if edit["by"] == "folder":
                path.mkdir()
            elif edit["by"] == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to(edit["by"])
        case "rename":
            path.rename(path.with_name(edit["to"]))
        case "json":
            path.write_bytes(_json_bytes(apply_change(json.loads(path.read_bytes()), edit)))
        case "line":
            lines = path.read_bytes().split(b"\n")
            lines.insert(edit["at"] % len(lines), _json_bytes(edit["value"]))
            path.write_bytes(b"\n".join(lines))
        case "toml":
            path.write_text(tomli_w.dumps(apply_change(tomllib.loads(path.read_text()), edit)))
        case "sql":
            _edit_database(path, edit["statement"], edit.get("values", []))


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def _edit_database(path: Path, statement: str, values: Sequence[Any]) -> None:
    values = [
        value["blob"].encode("latin-1") if isinstance(value, dict) else value for value in values
    ]
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    with contextlib.closing(db), contextlib.suppress(sqlite3.Error, OverflowError):
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(statement, values)


def changed_edit(template: Path, edit: Any, random: Random) -> Any:
    """Return an edit of the same file."""
    if edit["do"] == "sql" and edit["values"]:
        return {**edit, "values": [*edit["values"][:-1], _cell(random)]}
    if edit["do"] in ("bytes", "cut"):
        return {**edit, "at": max(0, edit["at"] + random.choice((-8, -1, 1, 8, 1000)))}
    if edit["do"] in ("json", "toml", "line"):
        return _text_edit(template, edit["file"], random)
    return new_edit(template, random)


def new_edit(template: Path, random: Random) -> dict[str, Any]:
    files = _files(str(template))
    chance = random.random()
    if chance < 0.06:
        file = random.choice(files)
        by = random.choice((*TARGETS, "folder", "pipe"))
        return random.choice(
            (
                {"file": file, "do": "remove"},
                {"file": file, "do": "replace", "by": by},
                {"file": file, "do": "rename", "to": random.choice(NEW_NAMES)},
            )
        )
    if chance < 0.22:
        file = random.choice(files)
        at = random.randrange(1 << 18)
        if random.random() < 0.3:
            return {"file": file, "do": "cut", "at": at}
        put = random.choice((*HOSTILE_TEXTS, "\xff\xfe", "{", '"', "[", "\n", "0", "9" * 400))
        put = put.encode().decode("latin-1")
        return {
            "file": file,
            "do": "bytes",
            "at": at,
            "drop": random.choice((0, 1, 2, 8, 64)),
            "put": put,
        }
    databases = [file for file in files if file.endswith("metrics.db")]
    if databases and chance < 0.6:
        return _database_edit(template, random.choice(databases), random)
    return _text_edit(template, random.choice([f for f in files if _is_text(f)]), random)


def _is_text(file: str) -> bool:
    return file.endswith((".json", ".toml", ".ndjson"))


def _text_edit(template: Path, file: str, random: Random) -> dict[str, Any]:
    text = (template / file).read_text()
    if file.endswith(".ndjson"):
        entry = json.loads(random.choice(text.splitlines()))
        at = random.randrange(100)
        return {"file": file, "do": "line", "at": at, "value": changed(entry, random)}
    if file.endswith(".toml"):
        return {"file": file, "do": "toml", **new_change(tomllib.loads(text), random)}
    return {"file": file, "do": "json", **new_change(json.loads(text), random)}


def _database_edit(template: Path, file: str, random: Random) -> dict[str, Any]:
    edit = {"file": file, "do": "sql"}
    tables = _tables(str(template / file))
    if random.random() < 0.1:
        return {**edit, "statement": random.choice(STATEMENTS), "values": []}
    bodies = _event_bodies(str(template / file))
    if bodies and random.random() < 0.35:
        kind, body = random.choice(bodies)
        text = json.dumps(changed(json.loads(body), random), ensure_ascii=random.random() < 0.5)
        statement = "INSERT INTO events (time, kind, rank, step, body) VALUES (0, ?, 0, 0, ?)"
        if random.random() < 0.5:
            statement = "UPDATE events SET kind = ?, body = ? WHERE kind = '" + kind + "'"
        return {**edit, "statement": statement, "values": [kind, text]}
    table, columns = random.choice([*tables.items()])
    column = random.choice(columns)
    row = random.randrange(40)
    rows = f"SELECT * FROM {table} LIMIT 1 OFFSET {row}"
    if random.random() < 0.4:
        return {**edit, "statement": f"UPDATE {table} SET {column} = ?", "values": [_cell(random)]}
    if random.random() < 0.3:
        names = ", ".join("?" if name == column else name for name in columns)
        statement = f"INSERT OR REPLACE INTO {table} SELECT {names} FROM ({rows})"
        return {**edit, "statement": statement, "values": [_cell(random)]}
    keys = [name for name in columns if name in KEYS]
    where = " AND ".join(f"{name} IS (SELECT {name} FROM ({rows}))" for name in keys)
    return {
        **edit,
        "statement": f"UPDATE {table} SET {column} = ? WHERE {where or 1}",
        "values": [_cell(random)],
    }


def _cell(random: Random) -> Any:
    """Return what a cell can hold: a number, text, bytes or nothing."""
    value = hostile_value(random)
    if isinstance(value, dict | list):
        return random.choice((json.dumps(value), {"blob": "\xff\x00\x1b"}))
    if isinstance(value, int) and abs(value) >= 2**63:
        return float(value)
    return value


@functools.cache
def _files(template: str) -> list[str]:
    folder = Path(template)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@functools.cache
def _tables(database: str) -> dict[str, list[str]]:
    with contextlib.closing(sqlite3.connect(database)) as db:
        names = [
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in names
        }


@functools.cache
def _event_bodies(database: str) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as db:
        return db.execute("SELECT kind, body FROM events GROUP BY kind").fetchall()
