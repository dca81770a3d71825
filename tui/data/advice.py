"""What to try when a run has failed: one sentence, from what is known of the failure."""

from __future__ import annotations

from runners.state import RunError

# The first whose words are all in the error's type and message.
_ADVICE = (
    (("out of memory",), "smaller train.batch_size, larger train.accumulate, or precision bf16"),
    (("NonFinite",), "a smaller train.lr, train.clip_norm = 1.0, warm-up, or precision fp32"),
    (("SIGKILL",), "look whether the host ran out of memory (dmesg), or somebody ended it"),
    (("unused",), "ddp.find_unused_parameters = true"),
    (("did not receive grad",), "ddp.find_unused_parameters = true"),
    (("Timeout",), "the log of the rank that is absent; dist.timeout_s gives it longer"),
    (("ModuleNotFoundError",), "launch from the folder that has the module, or install it"),
    (("FileNotFoundError",), "data.root in the config; relative paths mean the launch folder"),
    (("DataLoader worker",), "data.workers = 0 shows the error of the dataset itself"),
    (("SupervisorLost",), "resume goes on from the last checkpoint"),
    (("address already in use",), "launch again: the port is chosen anew"),
    (("NCCL",), "NCCL_DEBUG=INFO in the environment tells more; dist.backend = gloo rules it out"),
)


def advice(error: RunError) -> str:
    """What to try; where nothing better is known, where to look. May hold ids of keys."""
    text = f"{error.type} {error.message}".lower()
    for words, mend in _ADVICE:
        if all(word.lower() in text for word in words):
            return mend
    return (
        "the traceback in the log ({run.logs}), then {run.rerun} reruns with what you have changed"
    )
