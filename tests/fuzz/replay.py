"""Checks inputs again, without Atheris: `python -m tests.fuzz.replay TARGET FILE…`."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path


def main(name: str, *files: str) -> int:
    target = import_module(f"tests.fuzz.{name}")
    target.prepare()
    wrong = 0
    for file in files:
        try:
            target.check(Path(file).read_bytes())
        except Exception:
            print(f"{file}:\n{traceback.format_exc()}")
            wrong += 1
    target.close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
