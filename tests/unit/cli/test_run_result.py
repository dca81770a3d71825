"""Given the error of a run, when it is printed, then its first sentence is one line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distrain.runners.cli.run_result import describe_error, print_failure
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunError
from tests.support.records import RunBuilder


def test_a_message_of_many_lines_with_colours_is_one_plain_line() -> None:
    message = "Weights only load failed, \x1b[1mdo this\x1b[0m. \n\t(1) In PyTorch 2.6, …"
    error = RunError(rank=0, type="UnpicklingError", message=message, traceback="Traceback …")
    expected = "rank 0 failed: UnpicklingError: Weights only load failed, do this."
    assert describe_error(error) == expected


def test_an_exception_without_a_message_is_named_once() -> None:
    error = RunError(
        rank=1, type="MemoryError", message="MemoryError", step=10, traceback="Traceback …"
    )
    assert describe_error(error) == "rank 1 failed after step 10: MemoryError"


def test_a_config_that_does_not_suit_another_host_is_reported_with_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunBuilder(tmp_path)
    error = RunError(rank=2, type="TaskError", message="model.name: no module 'net'", usage=True)
    for host, where in (("", ""), ("h1", "rank 2 on h1: ")):
        run.writer.set_state(error=msgspec.structs.replace(error, host=host))
        print_failure(Record(run.dir), run.writer.state)
        assert capsys.readouterr().err == f"distrain: {where}model.name: no module 'net'\n"
