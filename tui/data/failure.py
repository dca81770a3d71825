"""A failed run as its card shows it: the error, the end of the log, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from distrain.runners.records.logs import log_path
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunError
from distrain.tui.data.log_tail import last_lines

LOG_LINES = 4

# The first entry applies whose words are all in the error's type and message.
_ADVICE = (
    (
        ("out of memory",),
        "decrease train.batch_size, increase train.accumulate, or use precision bf16",
    ),
    (
        ("NonFinite",),
        "decrease train.lr, set train.clip_norm = 1.0, add warm-up, or use precision fp32",
    ),
    (("SIGKILL",), "check dmesg for the OOM killer"),
    (("unused",), "set ddp.find_unused_parameters = true"),
    (("did not receive grad",), "set ddp.find_unused_parameters = true"),
    (("Timeout",), "read the log of the rank that is missing, or increase dist.timeout_s"),
    (("ModuleNotFoundError",), "launch from the folder that has the module, or install it"),
    (("FileNotFoundError",), "check data.root; relative paths start from the launch folder"),
    (("DataLoader worker",), "set data.workers = 0 to see the error of the dataset itself"),
    (("SupervisorLost",), "resume the run from its last checkpoint"),
    (("address already in use",), "launch again: another port will be chosen"),
    (("NCCL",), "set NCCL_DEBUG=INFO to log more, or dist.backend = gloo to avoid NCCL"),
)


class FailureDetails(NamedTuple):
    """Why a run failed, the last lines of the log that shows it, and whether it can resume."""

    error: RunError
    log_lines: Sequence[Text]
    has_checkpoint: bool


def read_failure(record: Record) -> FailureDetails | None:
    """Return why a run failed; None if it is live or did not fail."""
    state = record.state
    if state.error is None or state.live:
        return None
    log_lines: Sequence[Text] = ()
    if not state.error.usage:  # else the message says all, and the log ends with our traceback
        log_lines = last_lines(log_path(record.dir, state.error.log_name), LOG_LINES)
    return FailureDetails(state.error, log_lines, bool(record.last_checkpoint))


def advice_for(error: RunError) -> str:
    """Return what to try after an error. The text may contain ids of keys: "{run.logs}"."""
    text = f"{error.type} {error.message}".lower()
    for words, advice in _ADVICE:
        if all(word.lower() in text for word in words):
            return advice
    return "read the traceback in the log ({run.logs}), fix the cause, then {run.rerun} reruns"
