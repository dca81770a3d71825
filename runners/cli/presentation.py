"""How a session is shown: the one place where the command line tells runs from benches."""

from __future__ import annotations

from distrain.runners.bench.handle import Bench
from distrain.runners.cli.views import Presentation
from distrain.runners.runs import Run
from distrain.runners.session import Session


def present(session: Session) -> Presentation:
    """Return the presentation of a run or a bench."""
    if isinstance(session, Run):
        from distrain.runners.cli.run_presentation import RunPresentation

        return RunPresentation(session)
    from distrain.runners.cli.bench_presentation import BenchPresentation

    assert isinstance(session, Bench)
    return BenchPresentation(session)
