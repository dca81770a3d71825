"""How a run, a bench or a group is shown: the one place where commands tell them apart."""

from __future__ import annotations

from distrain.runners.bench.handle import Bench
from distrain.runners.cli.views import Presentation
from distrain.runners.groups import Group
from distrain.runners.runs import Run
from distrain.runners.session import Followed


def present(session: Followed) -> Presentation:
    """Return the presentation of a run, a bench or a group."""
    if isinstance(session, Run):
        from distrain.runners.cli.run_presentation import RunPresentation

        return RunPresentation(session)
    if isinstance(session, Group):
        from distrain.runners.cli.group_presentation import GroupPresentation

        return GroupPresentation(session)
    from distrain.runners.cli.bench_presentation import BenchPresentation

    assert isinstance(session, Bench)
    return BenchPresentation(session)
