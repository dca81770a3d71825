"""The program of a script's config: where it is, and what keeps it from starting.

Paths are looked up with `os.path`, which finds nothing where `pathlib` raises: in a folder that
this user may not enter, under a name that is too long, in the home of an unknown user.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from distrain.runners.config.schema import RunConfig


def working_folder(config: RunConfig, base_dir: Path) -> Path:
    """Return the absolute folder that the program works in; `base_dir` is that of the launch."""
    if config.script.cwd is None:
        return base_dir.absolute()
    return _config_folder(config, base_dir) / os.path.expanduser(config.script.cwd)


def program_path(config: RunConfig, base_dir: Path) -> str:
    """Return the program's path as its `argv[0]`: valid from the folder that it works in.

    A name without a folder, of a program that is not Python, may be a command.
    """
    given = config.script.path or ""
    folder = _config_folder(config, base_dir)
    path = folder / os.path.expanduser(given)
    if not config.script.is_python and os.sep not in given:
        return str(path) if os.path.isfile(path) else given
    return given if folder == working_folder(config, base_dir) else str(path)


def program_problems(config: RunConfig, base_dir: Path) -> list[tuple[str, str]]:
    """Return (key, reason) of what keeps the program from starting; imports and runs nothing."""
    folder = working_folder(config, base_dir)
    if not os.path.isdir(folder):
        return [("script.cwd", f"there is no folder {folder}")]
    if config.script.module:
        return []  # only an import can tell
    problem = _file_problem(config, program_path(config, base_dir), folder)
    return [("script.path", problem)] if problem else []


def _file_problem(config: RunConfig, given: str, folder: Path) -> str:
    is_python = config.script.is_python
    if not is_python and os.sep not in given:
        return "" if shutil.which(given) else f"there is no file or command {given}"
    path = folder / given
    if os.path.isdir(path):
        return f"{given} is a folder; name a script in it, or a package with -m"
    if not os.path.exists(path):
        return f"there is no file {path}"
    if is_python:
        return "" if os.access(path, os.R_OK) else f"{path} cannot be read: permission denied"
    if not os.access(path, os.X_OK):
        return f"{path} is not executable; run `chmod +x` on it (Python scripts end in .py)"
    return _first_line_problem(path)


def _first_line_problem(path: Path) -> str:
    """Return why the system cannot start an executable file of text."""
    try:
        with path.open("rb") as file:
            line = file.readline(256)
    except OSError:  # it may be executed, but not read
        return ""
    if not line.startswith(b"#!"):
        is_binary = b"\0" in line
        return "" if is_binary else f"the first line of {path} must name its shell: #!/bin/sh"
    words = os.fsdecode(line[2:]).strip(" \t\n").replace("\t", " ")
    interpreter = words.partition(" ")[
        0
    ]  # with the \r of a line of Windows, as the system reads it
    if os.path.exists(interpreter):
        return ""
    return f"the first line of {path} names {interpreter!r}, which does not exist"


def _config_folder(config: RunConfig, base_dir: Path) -> Path:
    """Return the folder that relative paths of the config's script start from."""
    return base_dir.absolute() / os.path.expanduser(config.code_dir or "")
