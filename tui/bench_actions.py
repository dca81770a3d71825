"""What a person does to benches, the same from every screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import work

from runners.config import RunConfig
from runners.errors import DistrainError
from runners.plan import Plan
from runners.runs import Run
from tui.run_actions import RunActions, Wanted, called

if TYPE_CHECKING:
    from runners.bench import Bench, Definition

Then = Callable[[bool], None]


class BenchActions(RunActions):
    """Mixed into the app; `runners.bench` is loaded by those who have to do with a bench."""

    def look_at(self, what: Run | Bench) -> None:
        """Open the screen of a run or a bench."""
        self.watch_run(what) if isinstance(what, Run) else self.watch_bench(what)

    def stop_it(self, what: Run | Bench) -> None:
        self.stop(what) if isinstance(what, Run) else self.stop_bench(what)

    def resume_it(self, what: Run | Bench) -> None:
        self.resume(what) if isinstance(what, Run) else self.resume_bench(what)

    def rerun_it(self, what: Run | Bench) -> None:
        self.rerun(what) if isinstance(what, Run) else self.rerun_bench(what)

    def watch_bench(self, bench: Bench) -> None:
        """Open the screen of a bench, where it is not there already."""
        from tui.screens.bench import BenchScreen

        if not (isinstance(self.screen, BenchScreen) and self.screen.bench.dir == bench.dir):
            self.push_screen(BenchScreen(bench))

    def plan_bench(self, configs: dict[str, RunConfig], then: Then) -> None:
        """Show what a bench of these would be, and start it once a person has said so; `then`
        hears whether it began.
        """
        if self.may_change():
            self._work_out_bench(configs, then)

    @work(thread=True, exclusive=True, group="bench")
    def _work_out_bench(self, configs: dict[str, RunConfig], then: Then) -> None:
        from runners import bench

        try:
            definition = bench.make(configs, {"unequal": True})
            plans = bench.plans(definition)
        except DistrainError as error:
            self.call_from_thread(self.refuse, f"bench: {error}")
        else:
            self.call_from_thread(self._ask_for_rules, definition, plans, then)

    def _ask_for_rules(self, definition: Definition, plans: dict[str, Plan], then: Then) -> None:
        from runners import bench
        from runners.bench.wording import command
        from tui.screens.bench_rules import BenchRules

        def answer(wanted: Definition | None) -> None:
            if wanted is not None:
                told = command(wanted)
                begin = partial(bench.start, wanted, runs_dir=self.runs_dir, command=told)
                self._begin("the bench", wanted, begin, then)

        self.push_screen(BenchRules(definition, plans), answer)

    def _begin(
        self,
        what: str,
        definition: Definition,
        launch: Callable[..., Bench],
        then: Then = lambda began: None,
        cwd: str | None = None,
    ) -> None:
        configs = list(definition.configs.values())
        self.start(Wanted(what, configs, launch, self.runs_dir, cwd, self.watch_bench), then)

    def stop_bench(self, bench: Bench) -> None:
        """Ask, and stop."""
        if not self.may_change():
            return None
        state = bench.state
        if not state.live:
            return self.refuse(f"{called(bench)} has ended: {state.status}")

        from tui.screens.dialogs import Choice

        def answer(how: str | None) -> None:
            if how:
                self._try(bench.stop, f"stopping {called(bench)}")

        text = (
            "The run under way is ended; rounds that are done stay, and "
            f"{self.key('bench.resume')} begins the present one anew."
        )
        answers = [("yes", "Stop the bench", "warning")]
        self.push_screen(Choice(f"Stop {called(bench)}?", text, answers), answer)
        return None

    def resume_bench(self, bench: Bench) -> None:
        """Go on with the next round, in the same folder."""
        if self.may_change():
            self._again(bench, "resumption", bench.resumption(), bench.resume)

    def rerun_bench(self, bench: Bench) -> None:
        """The same definition from the start."""
        if self.may_change():
            self._again(bench, "rerun", bench.definition, bench.rerun)

    def _again(
        self, bench: Bench, how: str, definition: Definition, launch: Callable[..., Bench]
    ) -> None:
        self._begin(f"{how} of {called(bench)}", definition, launch, cwd=bench.state.cwd)
