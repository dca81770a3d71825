"""Launching a run or a bench."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from distrain.runners.checks import check
from distrain.runners.config.plan import Plan
from distrain.runners.errors import DistrainError
from distrain.tui.base_app import BaseApp
from distrain.tui.requests import LaunchRequest, OnDone, ignore


class LaunchController:
    """Launches one request at a time: checks it, asks about busy devices, starts it."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._launching = ""  # the action of the request in progress

    @property
    def is_launching(self) -> bool:
        return bool(self._launching)

    def launch(self, request: LaunchRequest, on_done: OnDone = ignore, queue: bool = False) -> None:
        if self._launching:
            self._app.refuse(f"{self._launching} is in progress; try again in a moment")
            return
        self._launching = request.action

        def done(started: bool) -> None:
            self._launching = ""
            on_done(started)

        if queue:
            self._start(request, done, queue)
        else:
            self._app.run_worker(partial(self._check_devices, request, done), thread=True)

    def _check_devices(self, request: LaunchRequest, done: OnDone) -> None:
        """Find out who holds the devices; run in a thread."""
        from distrain.runners.supervision import device_queue  # loads psutil

        try:
            plans = [check(config, request.cwd) for config in request.configs]
        except DistrainError as error:
            self._app.call_from_thread(self._refuse, request, error, done)
            return
        obstacles: list[str] = []
        with suppress(DistrainError):  # without a queue the run may start all the same
            obstacles = device_queue.find_obstacles_of_any(plans, request.runs_dir)
        if obstacles:
            self._app.call_from_thread(self._ask_about_devices, request, plans, obstacles, done)
        else:
            self._app.call_from_thread(self._start, request, done, queue=False)

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
        self._app.push_screen(dialog, answer)

    def _start(self, request: LaunchRequest, done: OnDone, queue: bool) -> None:
        self._app.run_worker(partial(self._start_in_thread, request, done, queue), thread=True)

    def _start_in_thread(self, request: LaunchRequest, done: OnDone, queue: bool) -> None:
        """Start the session, which takes about a second until the supervisor listens."""
        try:
            session = request.start(queue=queue)
        except DistrainError as error:
            self._app.call_from_thread(self._refuse, request, error, done)
        else:
            self._app.call_from_thread(done, True)
            self._app.call_from_thread(self._app.sessions.open, session)

    def _refuse(self, request: LaunchRequest, error: DistrainError, done: OnDone) -> None:
        done(False)
        self._app.refuse(f"{request.action}: {error}")
