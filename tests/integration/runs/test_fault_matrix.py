"""A sample of the fault matrix, the same in each run; `make test-faults` tries all of it."""

from __future__ import annotations

import pytest

from tests.faults import page
from tests.faults.__main__ import namespace, try_case
from tests.faults.cases import Case, covering_set, everything

# One fault of a rank, the launcher and the supervisor, each in another phase; then the disk.
SAMPLE = [
    Case("rank", "SIGKILL", "checkpoint", "spawn"),
    Case("launcher", "raises", "evaluation", "torchrun"),
    Case("supervisor", "SIGTERM", "start", "spawn"),
    Case("special", "out of inodes at the start", "", ""),
]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
def test_a_fault_ends_as_it_should(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not namespace():
        pytest.skip("this machine lets nobody mount a disk")
    result = try_case(case, tmp_path_factory.mktemp("f") / "0")
    assert result["problems"] == []


def test_every_pair_of_two_values_is_covered() -> None:
    def pairs(case: Case) -> set[tuple[object, ...]]:
        return {(i, case[i], j, case[j]) for i in range(4) for j in range(i)}

    assert set().union(*map(pairs, covering_set())) == set().union(*map(pairs, everything()))
    assert len(covering_set()) <= 80


def test_the_page_has_the_latest_results() -> None:
    text = page.PAGE.read_text()
    assert page.filled(text) == text, "run `python -m tests.faults.page`"
