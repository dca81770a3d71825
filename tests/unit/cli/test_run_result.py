"""Given the error of a run, when it is printed, then its first sentence is one line."""

from __future__ import annotations

from distrain.runners.cli.run_result import describe_error
from distrain.runners.records.state import RunError


def test_a_message_of_many_lines_with_colours_is_one_plain_line() -> None:
    message = "Weights only load failed, \x1b[1mdo this\x1b[0m. \n\t(1) In PyTorch 2.6, …"
    error = RunError(rank=0, type="UnpicklingError", message=message, traceback="Traceback …")
    expected = "rank 0 failed: UnpicklingError: Weights only load failed, do this."
    assert describe_error(error) == expected
