"""A failed run as its card shows it: the error, where in the code it is, and what to try."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.records.logs import log_path
from distrain.runners.records.reader import Record
from distrain.runners.records.stacks import is_library
from distrain.runners.records.state import RunError
from distrain.tui.data.log_tail import last_lines

LOG_LINES = 4
SEARCHED_LINES = 60  # at the end of a log, in which a traceback may be


class _Advice(NamedTuple):
    """What to try if all words are in the type and message of an error; scripts have no config."""

    words: tuple[str, ...]
    text: str
    for_scripts: str = ""


_SMALLER = "use smaller batches, or fewer loader processes"
_SAME_COLLECTIVES = (
    "let all ranks call the same collectives in the same order, with tensors of equal size"
)
_ADVICE = (
    _Advice(
        ("out of memory",),
        "decrease train.batch_size, increase train.accumulate, or use precision bf16",
        _SMALLER,
    ),
    _Advice(
        ("NonFinite",),
        "decrease train.lr, set train.clip_norm = 1.0, add warm-up, or use precision fp32",
    ),
    _Advice(
        ("SIGKILL",),
        "check dmesg for the OOM killer; if it was, decrease train.batch_size or data.workers",
        f"check dmesg for the OOM killer; if it was, {_SMALLER}",
    ),
    _Advice(("different collectives",), _SAME_COLLECTIVES),
    _Advice(("op.preamble.length",), _SAME_COLLECTIVES),  # gloo: unequal sizes
    _Advice(("SIGSEGV",), "read the log ({run.logs}): a library in C or C++ has crashed"),
    _Advice(("SIGABRT",), "read the log ({run.logs}): a library has aborted the process"),
    _Advice(("SIGTERM",), "find out who ended it: a user, a scheduler or the limit of a container"),
    _Advice(
        ("without reporting an error",),
        "read the log ({run.logs}): os._exit, or code that is not Python, ended the process",
    ),
    _Advice(
        ("unused",),
        "set ddp.find_unused_parameters = true",
        "pass find_unused_parameters=True to DistributedDataParallel",
    ),
    _Advice(("did not receive grad",), "set ddp.find_unused_parameters = true"),
    _Advice(
        ("Timeout",),
        "read the log of the rank that is missing, or increase dist.timeout_s",
        "read the log of the rank that is missing",
    ),
    _Advice(("ModuleNotFoundError",), "launch from the folder that has the module, or install it"),
    _Advice(
        ("FileNotFoundError",),
        "check data.root; relative paths start from the launch folder",
        "check the path; relative paths start from the launch folder",
    ),
    _Advice(
        ("DataLoader worker",),
        "set data.workers = 0 to see the error of the dataset itself",
        "set num_workers=0 to see the error of the dataset itself",
    ),
    _Advice(("SupervisorLost",), "start the run again"),
    _Advice(
        ("address already in use",),
        "launch again: another port will be chosen",
        "end the program that has the port, or let the script choose another one",
    ),
    _Advice(
        ("NCCL",),
        "set NCCL_DEBUG=INFO to log more, or dist.backend = gloo to avoid NCCL",
        "set NCCL_DEBUG=INFO to log more",
    ),
)
_GENERAL = "read the traceback in the log ({run.logs}), fix the cause, then {run.rerun} reruns"
# Of a program that distrain did not start, whose output it does not have.
_OBSERVED = "read what the program has printed, fix the cause, then start it again yourself"
_FRAME = re.compile(
    r"^[ |+]*(?:\[\w+\]: +)?File \"(?P<file>.+)\", line (?P<line>\d{1,9})"
    r"(?:, in (?P<function>.+))?$"
)
_PREFIX = re.compile(r"^[ |]*(?:\[\w+\]:)?\s*")


class CodePlace(NamedTuple):
    """A line of code in a traceback; `source` is its text where the traceback has it."""

    file: str
    line: int
    function: str
    source: str

    def describe(self) -> str:
        """Return "train.py:17 in loss"."""
        where = f"{self.file}:{self.line}"
        named = self.function and not self.function.startswith("<")
        return f"{where} in {self.function}" if named else where


class FailureDetails(NamedTuple):
    """Why a run failed, where in the code, and whether distrain has a checkpoint to resume from.

    Without a `place`, `log_lines` are the last ones of the log that explains the failure.
    `is_observed`: distrain did not start the program.
    """

    error: RunError
    place: CodePlace | None
    log_lines: Sequence[Text]
    has_checkpoint: bool
    is_script: bool = False
    is_observed: bool = False


def read_failure(record: Record) -> FailureDetails | None:
    """Return why a run failed; None if it is live or did not fail."""
    state = record.state
    error = state.error
    if error is None or state.live:
        return None
    place, log_lines = None, list[Text]()
    if not error.usage:  # else the message says all, and the traceback is ours
        lines = last_lines(log_path(record.dir, error.log_name), SEARCHED_LINES)
        cwd = str(state.provenance.get("cwd", ""))
        trace = error.traceback or "\n".join(line.plain for line in lines)
        place = find_place(trace, cwd)
        if place is None:
            log_lines = [line for line in lines if not repeats(line.plain, error)][-LOG_LINES:]
    is_script = record.config.is_script
    is_observed = state.plan is not None and state.plan.observed
    has_checkpoint = bool(record.resumes_from)
    return FailureDetails(error, place, log_lines, has_checkpoint, is_script, is_observed)


def find_place(traceback: str, cwd: str = "") -> CodePlace | None:
    """Return the last line of the user's own code in a traceback, else the last line of any.

    The traceback of a loader process is a part of the message of another one, and its lines come
    last. Files below `cwd` are named from there.
    """
    places = list(_places(traceback.splitlines()))
    own = [place for place in places if not is_library(place.file)]
    if not places:
        return None
    found = (own or places)[-1]
    below = cwd and found.file.startswith(cwd.rstrip(os.sep) + os.sep)
    return found._replace(file=os.path.relpath(found.file, cwd)) if below else found


def _places(lines: Sequence[str]) -> list[CodePlace]:
    found = []
    for line, following in pairwise([*lines, ""]):
        if match := _FRAME.match(line):
            is_source = not (_FRAME.match(following) or "^^^" in following)
            source = _PREFIX.sub("", following) if is_source else ""
            function = match["function"] or ""
            found.append(CodePlace(match["file"], int(match["line"]), function, source.rstrip()))
    return found


def repeats(line: str, error: RunError) -> bool:
    """Return whether a line of a log says what the card says already."""
    message = formatting.single_line(error.message)
    text = formatting.single_line(_PREFIX.sub("", line))
    return bool(text) and (text in message or (bool(message) and message in text))


def advice_for(error: RunError, is_script: bool = False, is_observed: bool = False) -> str:
    """Return what to try after an error. The text may contain ids of keys: "{run.logs}"."""
    text = f"{error.type} {error.message}".lower()
    found = _GENERAL
    for advice in _ADVICE:
        if all(word.lower() in text for word in advice.words):
            found = (is_script and advice.for_scripts) or advice.text
            break
    return _OBSERVED if is_observed and "{run.logs}" in found else found
