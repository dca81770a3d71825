"""What is read from the logs of ranks."""

from __future__ import annotations

import signal
from pathlib import Path

from distrain.runners.records.logs import MAX_WORDS, log_path, read_last_words

ABORTED = "terminate called after throwing an instance of 'c10::Error'\n  what():  no memory\n…\n"


def test_what_ranks_printed_of_their_end(tmp_path: Path) -> None:
    printed = ["epoch 1\n\x1b[31mno such file\n\n", ABORTED, "x" * 100_000, "", "epoch 1\n"]
    printed += ["no file", "epoch 1\nfree(): invalid pointer\n", "epoch 1\n"]
    (tmp_path / "logs").mkdir()
    for rank, text in enumerate(printed):
        log_path(tmp_path, f"rank-{rank}").write_text(text)
    codes = {0: 1, 1: -signal.SIGABRT, 2: 1, 3: 1, 4: -signal.SIGKILL, 8: 1}
    codes |= {6: -signal.SIGABRT, 7: -signal.SIGABRT}
    words = read_last_words(tmp_path, codes)
    assert words == {
        0: "no such file",
        1: "no memory",
        2: "x" * MAX_WORDS,
        6: "free(): invalid pointer",
    }
