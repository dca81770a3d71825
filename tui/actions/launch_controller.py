"""Launching a run or a bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from distrain.runners.checks import check
from distrain.runners.config.plan import Plan
from distrain.runners.errors import DistrainError
from distrain.runners.formatting import plural
from distrain.tui.base_app import BaseApp
from distrain.tui.requests import LaunchRequest, OnDone, ignore

if TYPE_CHECKING:
    from distrain.runners.groups import Group
    from distrain.runners.session import Session
    from distrain.tui.dialogs.dialog import ChoiceDialog


class LaunchController:
    """Launches one request at a time: checks it, asks about busy devices, starts it."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._launching = ""  # the action of the request in progress
        self._asks = False  # a question about it is open
        self._has_gone_on: Callable[[], bool] = bool  # the person, since it was made
        self._typed_before: str | None = None  # when it was started

    @property
    def is_launching(self) -> bool:
        return bool(self._launching)

    def launch(self, request: LaunchRequest, on_done: OnDone = ignore, queue: bool = False) -> None:
        if self._launching:
            self._app.refuse(f"{self._launching} is in progress; try again in a moment")
            return
        self._launching = request.action
        self._has_gone_on = self._app.watch_attention()

        def done(opens: bool) -> None:
            self._launching = ""
            on_done(opens)

        if queue:
            self._start(request, done, queue)
        else:
            self._in_thread(self._check_devices, request, done)

    def forget_question(self) -> None:
        """Drop a request whose question was removed from the screen without an answer."""
        if self._asks:
            self._asks, self._launching = False, ""

    def _in_thread(self, act: Callable[..., None], request: LaunchRequest, done: OnDone) -> None:
        """Call `act` in a thread; however it fails, the request is no longer in progress."""

        def acted() -> None:
            try:
                act(request, done)
            except DistrainError as error:
                self._app.call_from_thread(self._refuse, request, error, done)
            except Exception:
                self._app.call_from_thread(done, False)
                raise

        self._app.run_worker(acted, thread=True)

    def _check_devices(self, request: LaunchRequest, done: OnDone) -> None:
        """Find out who holds the devices; run in a thread."""
        from distrain.runners.supervision import device_queue  # loads psutil

        plans = [check(config, request.cwd) for config in request.configs]
        obstacles: list[str] = []
        with suppress(DistrainError):  # without a queue the run may start all the same
            obstacles = device_queue.find_obstacles_of_any(plans, request.runs_dir)
        if obstacles:
            self._app.call_from_thread(self._ask_about_devices, request, plans, obstacles, done)
        elif request.asks:
            self._app.call_from_thread(self._ask_whether_to_launch, request, plans, done)
        else:
            self._app.call_from_thread(self._start, request, done, queue=False)

    def _ask_whether_to_launch(
        self, request: LaunchRequest, plans: Sequence[Plan], done: OnDone
    ) -> None:
        from distrain.tui.data.launch_preview import devices
        from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

        def answer(choice: str | None) -> None:
            if choice:  # the devices may be busy by now
                self._in_thread(self._check_devices, request._replace(asks=False), done)
            else:
                done(False)

        ranks = [f"{plural(plan.world_size, 'rank')} on {devices(plan)}" for plan in plans]
        text = "\n".join(dict.fromkeys(ranks))
        answers = [Answer("launch", "Launch", "primary", "l")]
        heading = f"{request.action[:1].upper()}{request.action[1:]}?"
        self._ask(request, ChoiceDialog(heading, text, answers), answer)

    def _ask_about_devices(
        self, request: LaunchRequest, plans: Sequence[Plan], obstacles: list[str], done: OnDone
    ) -> None:
        from distrain.tui.dialogs.busy_devices import BusyDevicesDialog

        def answer(choice: str | None) -> None:
            if choice:
                self._start(request, done, queue=choice == "queue")
            else:
                done(False)

        dialog = BusyDevicesDialog(request.action, plans, request.runs_dir, obstacles)
        self._ask(request, dialog, answer)

    def _ask(
        self, request: LaunchRequest, dialog: ChoiceDialog, answer: Callable[[str | None], None]
    ) -> None:
        """Ask about a request, unless the person has gone on to something else meanwhile: what
        is typed there would be the answer.
        """

        def answered(choice: str | None) -> None:
            self._asks = False
            answer(choice)

        if self._has_gone_on():
            answer(None)
            self._app.refuse(f"{request.action}: not asked while you do something else; try again")
            return
        self._asks = True
        dialog.leave_keys(self._app.screen.active_bindings)
        self._app.push_screen(dialog, answered)

    def _start(self, request: LaunchRequest, done: OnDone, queue: bool) -> None:
        self._typed_before = self._app.typed_text
        self._in_thread(partial(self._start_in_thread, queue=queue), request, done)

    def _start_in_thread(self, request: LaunchRequest, done: OnDone, queue: bool) -> None:
        """Start the session, which takes about a second until the supervisor listens."""
        session = request.start(queue=queue)
        self._app.call_from_thread(self._show_started, session, done)

    def _show_started(self, session: Session | Group, done: OnDone) -> None:
        """Open the screen of what has started, unless it would interrupt the person."""
        opens = self._app.typed_text in (None, self._typed_before)
        done(opens)
        if opens:
            self._app.sessions.open(session)
        else:
            self._app.notify(f"{session.name or session.id} has started")

    def _refuse(self, request: LaunchRequest, error: DistrainError, done: OnDone) -> None:
        done(False)
        self._app.refuse(f"{request.action}: {error}")
