"""Given a script, when it runs as a single rank, then what it saved and missed is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distrain.runners.instrumentation.automatic import rank_facts
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.tracked import make_tracked
from distrain.runners.protocol.reporter import NullReporter
from tests.support.observed_scripts import run_scripts

SAVES = """
    import io, pathlib
    folder = pathlib.Path({folder!r})
    (folder / "link").symlink_to(folder)
    torch.save(model.state_dict(), f=folder / "link" / "model.pt")
    torch.save(1, str(folder / "last.pt"))
    torch.save(2, folder / "last.pt")
    torch.save(1, io.BytesIO())
    torch.save(1, "/dev/null")
    with open(folder / "open.pt", "wb") as file:
        torch.save(1, file)
    assert torch.load(folder / "last.pt") == 2
"""
STEPS = """
    for batch in loader():
        loss_of(model, batch).backward()
        optimizer.step()
"""
STEPS_OF_A_GROUP = """
    from torch.testing._internal.distributed import fake_pg
    torch.distributed.init_process_group("fake", store=fake_pg.FakeStore(), rank=0, world_size=2)
    for batch in loader():
        loss_of(model, batch).backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
"""
STEPS_IN_A_THREAD = """
    import threading
    def train():
        loss_of(model, (torch.ones(4, 2), torch.ones(4, 1))).backward()
        optimizer.step()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("saved"))
    scripts = {"saves": SAVES.format(folder=folder), "steps": STEPS, "thread": STEPS_IN_A_THREAD}
    scripts["group"] = STEPS_OF_A_GROUP
    return {"folder": {"path": folder}, **run_scripts(scripts)}


def test_files_are_reported_once_by_their_real_path(found: dict[str, dict[str, Any]]) -> None:
    folder = Path(found["folder"]["path"]).resolve()
    assert found["saves"]["output"] == ""
    saved = found["saves"]["facts"]["saved"]
    assert saved == [str(folder / "model.pt"), str(folder / "last.pt")]
    assert found["saves"]["facts"]["has_idle_optimizer"]


@pytest.mark.parametrize("name", ["steps", "thread"])
def test_a_single_rank_that_trains_has_nothing_to_report(
    found: dict[str, dict[str, Any]], name: str
) -> None:
    assert found[name]["output"] == ""
    assert found[name]["facts"] == {}


def test_a_process_group_with_more_ranks_than_the_run_is_reported(
    found: dict[str, dict[str, Any]],
) -> None:
    assert found["group"]["output"] == ""
    assert found["group"]["facts"]["group_size"] == 2


def test_the_first_batches_of_track_are_compared_as_those_of_a_loader() -> None:
    session = RankSession(NullReporter(), 0, world_size=2)
    rank_facts.attach(session)
    for _ in make_tracked([torch.ones(4) * number for number in range(5)], session):
        session.step()
    facts = session.automatic.facts(5, True)
    assert facts is not None
    assert len({*facts.batches}) == rank_facts.COMPARED_BATCHES
    assert session.automatic.add_batch is None
