"""Runs one target under Atheris: `python -m tests.fuzz.worker TARGET --inputs N --out FOLDER`.

A wrong input is kept and the run goes on; of several that fail at the same place, the shortest one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import atheris

HERE = Path(__file__).parent
MOST_CPU_S = 5.0  # of one input, which takes milliseconds
CHECKED_EVERY = 100  # inputs, between two looks at the clock
RESULT_S = 10.0  # between two writings of the result
LONGEST_S = 120  # the same, of the clock: an input that never ends
MEMORY_MB = 3000
BYTES_SHARE = 0.4  # of the mutations that are libFuzzer's own


class Worker:
    def __init__(self, target: ModuleType, inputs: int, seconds: float, out: Path) -> None:
        self._target = target
        self._inputs, self._seconds = inputs, seconds
        self._out = out
        self._began = self._written = time.monotonic()
        self._random = Random()
        self._tried = 0
        self._slowest = 0.0
        self._found: dict[str, int] = {}  # the place → length of the shortest input
        out.mkdir(parents=True, exist_ok=True)

    def try_input(self, data: bytes) -> None:
        began = time.process_time()
        try:
            self._target.check(data)
            duration = time.process_time() - began
            self._slowest = max(self._slowest, duration)
            if duration > MOST_CPU_S:
                raise TimeoutError(f"it takes {duration:.1f} s of CPU time")
        except Exception as error:
            self._keep(data, error)
        self._tried += 1
        if self._tried >= self._inputs:
            self.end()
        if self._tried % CHECKED_EVERY == 0:
            now = time.monotonic()
            if now - self._began > self._seconds:
                self.end()
            if now - self._written > RESULT_S:  # for the case that this process is killed
                self._written = now
                self._write_result()

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        self._random.seed(seed)
        if self._random.random() < BYTES_SHARE and self._target.MUTATES_BYTES:
            return bytes(atheris.Mutate(data, max_size))
        result: bytes = self._target.mutate(data, self._random)
        return result[:max_size] if self._target.MUTATES_BYTES or len(result) <= max_size else data

    def _keep(self, data: bytes, error: Exception) -> None:
        place = _place_of(error)
        if len(data) >= self._found.get(place, sys.maxsize):
            return
        is_new = place not in self._found
        self._found[place] = len(data)
        name = hashlib.sha256(place.encode()).hexdigest()[:12]
        (self._out / f"{name}.input").write_bytes(data)
        text = "".join(traceback.format_exception(error))
        (self._out / f"{name}.txt").write_text(f"{place}\n\n{text}", errors="backslashreplace")
        if is_new:
            os.write(2, f"{self._target.__name__}: {place!a}\n".encode())

    def _write_result(self) -> None:
        result: dict[str, Any] = {
            "inputs": self._tried,
            "seconds": round(time.monotonic() - self._began, 1),
            "slowest_s": round(self._slowest, 3),
            "found": sorted(self._found),
        }
        (self._out / "result.json").write_text(json.dumps(result, indent=2))

    def end(self, *_: object) -> None:
        """Write the result and end this process, as libFuzzer does not return."""
        self._write_result()
        self._target.close()
        os._exit(0)


def _place_of(error: Exception) -> str:
    """Return what distinguishes an error: its type and the innermost line of ours."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename
    ]
    last = frames[-1]
    text = str(error)[:60] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {last.name} {text}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--inputs", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the result")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that new inputs go to")
    parser.add_argument("--minimise", type=Path, help="folder for the part that covers as much")
    arguments, of_merge = parser.parse_known_args()
    # Commands load modules when they need them, so the hook stays.
    atheris.instrument_imports(include=["distrain"]).__enter__()
    target = import_module(f"tests.fuzz.{arguments.target}")
    out = arguments.out.absolute()
    for folder in (out, arguments.corpus):
        folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(target, arguments.inputs, arguments.seconds, out)
    options = [
        *(f"-max_len={target.MAX_LENGTH}", f"-timeout={LONGEST_S}", f"-rss_limit_mb={MEMORY_MB}"),
        *(f"-seed={arguments.seed}", f"-artifact_prefix={out}/", "-verbosity=0"),
        f"-cross_over={int(target.MUTATES_BYTES)}",
    ]
    if target.DICTIONARY:
        (out / "dictionary").write_text("".join(f"{_quoted(word)}\n" for word in target.DICTIONARY))
        options.append(f"-dict={out}/dictionary")
    program = out / "again"  # libFuzzer merges in processes that it starts by this name
    words = [sys.executable, "-m", "tests.fuzz.worker", arguments.target]
    places = ["--out", str(out), "--corpus", str(arguments.corpus)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, *places])} "$@"\n')
    program.chmod(0o700)
    if of_merge:
        options = of_merge
    else:
        folders = [arguments.corpus, HERE / "corpus" / arguments.target, _write_seeds(target, out)]
        if arguments.minimise:
            options.append("-merge=1")
            folders.insert(0, arguments.minimise)
        options += [str(folder) for folder in folders if folder.is_dir()]
    target.prepare()
    signal.signal(signal.SIGTERM, worker.end)  # after it, what was tried counts
    atheris.Setup([str(program), *options], worker.try_input, custom_mutator=worker.mutate)
    atheris.Fuzz()


def _write_seeds(target: ModuleType, out: Path) -> Path:
    folder = out / "seeds"
    folder.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (folder / f"{number}").write_bytes(seed)
    return folder


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    main()
