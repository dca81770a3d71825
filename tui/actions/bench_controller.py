"""The controller that plans a bench of several configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.tui.base_app import BaseApp
from distrain.tui.requests import LaunchRequest, OnDone

if TYPE_CHECKING:
    from distrain.runners.bench import Definition


class BenchController:
    """Asks for the rules of a bench and launches it. Loads `runners.bench` on first use."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app

    def plan(self, configs: Mapping[str, RunConfig], on_done: OnDone) -> None:
        if self._app.check_may_change():
            ask = partial(self._ask_for_rules, self._app.watch_attention(), on_done)
            make = partial(self._make_definition, dict(configs), ask)
            self._app.run_worker(make, thread=True, exclusive=True, group="bench")

    def _make_definition(
        self, configs: dict[str, RunConfig], ask: Callable[[Definition, dict[str, Plan]], None]
    ) -> None:
        """Make the definition and the plans; run in a thread, because plans take a moment."""
        from distrain.runners import bench

        try:
            definition = bench.make(configs, {"unequal": True})
            plans = bench.plans(definition)
        except DistrainError as error:
            self._app.call_from_thread(self._app.refuse, f"bench: {error}")
        else:
            self._app.call_from_thread(ask, definition, plans)

    def _ask_for_rules(
        self,
        has_gone_on: Callable[[], bool],
        on_done: OnDone,
        definition: Definition,
        plans: dict[str, Plan],
    ) -> None:
        from distrain.tui.dialogs.bench_rules import BenchRulesDialog

        def answer(edited: Definition | None) -> None:
            if edited is not None:
                self._app.launches.launch(self._request(edited), on_done)

        if has_gone_on():
            self._app.refuse("bench: not asked while you do something else; try again")
        else:
            self._app.push_screen(BenchRulesDialog(definition, plans), answer)

    def _request(self, definition: Definition) -> LaunchRequest:
        from distrain.runners import bench
        from distrain.runners.bench.progress import shell_command

        runs_dir = self._app.runs_dir
        start = partial(
            bench.start, definition, runs_dir=runs_dir, command=shell_command(definition)
        )
        return LaunchRequest("start the bench", list(definition.configs.values()), start, runs_dir)
