"""What a person does to runs and benches: open, stop, rerun, resume, edit, delete, restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from distrain.runners import formatting
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.trust import describe
from distrain.runners.errors import DistrainError
from distrain.runners.records.state import TRASH
from distrain.runners.records.trash import require_unused, restore
from distrain.runners.runs import Run
from distrain.runners.session import Session
from distrain.tui.base_app import BaseApp
from distrain.tui.requests import LaunchRequest
from distrain.tui.screens.app_screen import AppScreen

if TYPE_CHECKING:
    from distrain.runners.groups import Group
    from distrain.tui.dialogs.dialog import Answer

T = TypeVar("T")


def do_nothing() -> None:
    """Do nothing: the default of callbacks."""


class SessionController:
    """Acts on runs and benches; asks first where something would be lost."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._deleted: Sequence[str] = ()  # names in the trash of what was deleted last
        # Which ends were reported, by id and time.
        self._reported: set[tuple[str, float | None]] = set()

    # --- open -----------------------------------------------------------------------------------

    def open(self, session: Session | Group) -> None:
        if session.kind == "group":
            from distrain.tui.screens.group_screen import GroupScreen

            self._app.push_screen(GroupScreen(session))
        elif isinstance(session, Run):
            from distrain.tui.screens.run_screen import RunScreen

            self._app.push_screen(RunScreen(session))
        else:
            self._open_bench(session)

    def _open_bench(self, session: Session) -> None:
        from distrain.runners.bench import Bench
        from distrain.tui.screens.bench_screen import BenchScreen

        assert isinstance(session, Bench)
        screen = self._app.screen
        is_open = isinstance(screen, BenchScreen) and screen.bench.dir == session.dir
        if not is_open:  # a bench that is resumed from its own screen keeps it
            self._app.push_screen(BenchScreen(session))

    # --- stop -----------------------------------------------------------------------------------

    def stop(self, session: Session | Group) -> None:
        if not self._app.check_may_change():
            return
        if not session.is_live:
            self._app.refuse(f"{label(session)} has already ended: {session.status}")
        elif session.kind == "group":
            self._ask_to_stop_group(session)
        elif session.kind == "bench":
            self._ask_to_stop_bench(session)
        else:
            self._ask_to_stop_run(session)

    def _ask_to_stop_group(self, group: Group) -> None:
        from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

        def answer(choice: str | None) -> None:
            if choice:
                stop = partial(group.stop, now=choice == "now")
                self._in_thread(stop, f"stopping all runs of {group.name}")

        configs = group.live_configs()
        gently = Answer("gently", "Stop", "warning", "y")
        if configs and all(config.saves_at_stop for config in configs):
            how = "The others stop after the same step with a checkpoint"
            gently = Answer("gently", "Stop with checkpoints", "warning", "c")
        elif any(config.is_script for config in configs):
            how = (
                "The programs of the others are asked to stop if they call "
                "distrain.should_stop(), and interrupted as by Ctrl-C otherwise"
            )
        else:
            how = "The others stop; no checkpoint is written where checkpoint.keep is 0"
        text = (
            f"{group.reason}. Runs in the queue are removed and never start. {how}; "
            "“Stop now” ends them at once."
        )
        answers = [gently, Answer("now", "Stop now", "error", "w")]
        self._app.push_screen(
            ChoiceDialog(f"Stop all runs of {group.name}?", text, answers), answer
        )

    def _ask_to_stop_bench(self, bench: Session) -> None:
        from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

        name = label(bench)

        def answer(choice: str | None) -> None:
            if choice:
                self._in_thread(bench.stop, f"stopping {name}")

        text = (
            "The current run is stopped. Completed rounds are kept; "
            f"{self._app.key('bench.resume')} repeats the interrupted round later."
        )
        answers = [Answer("yes", "Stop the bench", "warning", "y")]
        self._app.push_screen(ChoiceDialog(f"Stop {name}?", text, answers), answer)

    def _ask_to_stop_run(self, run: Session) -> None:
        from distrain.tui.dialogs.dialog import ChoiceDialog

        name = label(run)
        was_queued = run.status == "queued"

        def answer(choice: str | None) -> None:
            if choice and was_queued and run.status != "queued":
                self._app.refuse(f"{name} has left the queue and is {run.status}; nothing was done")
            elif choice:
                self._in_thread(partial(run.stop, now=choice == "now"), f"stopping {name}")

        text, answers = self._ways_to_stop(run)
        self._app.push_screen(ChoiceDialog(f"Stop {name}?", text, answers), answer)

    def _ways_to_stop(self, run: Session) -> tuple[str, list[Answer]]:
        """Return what a stop does to a run, and the answers to choose from."""
        from distrain.tui.dialogs.dialog import Answer

        now = Answer("now", "Stop now", "error", "w")
        if run.status == "queued":
            text = "It is removed from the queue and never starts."
            return text, [Answer("now", "Remove from the queue", "warning", "r")]
        if isinstance(run, Run) and run.is_observed:
            text = (
                "Its program is asked through distrain.should_stop(). distrain did not start it "
                "and does not end it."
            )
            return text, [Answer("gently", "Ask it to stop", "warning", "y")]
        if isinstance(run, Run) and run.record.state.waiting_for:  # for hosts to join
            text = "It ends before it has begun to train."
            return text, [Answer("gently", "Stop", "warning", "y")]  # they may join meanwhile
        if isinstance(run, Run) and run.record.config.is_script:
            text = (
                "Its program is asked to stop if it calls distrain.should_stop(), and interrupted "
                "as by Ctrl-C otherwise. “Stop now” ends it at once."
            )
            return text, [Answer("gently", "Stop", "warning", "y"), now]
        if isinstance(run, Run) and not run.record.config.saves_at_stop:
            text = (
                "Every rank stops after the same step. No checkpoint is written, because "
                "checkpoint.keep is 0. “Stop now” ends the run at once."
            )
            return text, [Answer("gently", "Stop", "warning", "y"), now]
        if isinstance(run, Run) and run.record.state.current_stall:
            text = (
                "It is stalled, and stops with a checkpoint only if it goes on. “Stop now” ends "
                "it at once: steps after the last checkpoint are lost."
            )
            return text, [Answer("gently", "Stop", "warning", "y"), now]
        text = (
            "Every rank stops after the same step and a checkpoint is written; "
            f"{self._app.key('run.resume')} continues from it later. “Stop now” ends the run "
            "at once: steps after the last checkpoint are lost."
        )
        return text, [Answer("gently", "Stop with a checkpoint", "warning", "c"), now]

    # --- start again ----------------------------------------------------------------------------

    def rerun(self, session: Session) -> None:
        self._rerun(session, asks=True)

    def _rerun(self, session: Session, asks: bool) -> None:
        if self._app.check_may_change():
            action = f"rerun {label(session)}"
            self._launch_again(action, session, session.rerun_configs, session.rerun, asks)

    def resume(self, session: Session) -> None:
        """Continue a run or bench; ask what to do with a run that has nothing left to train."""
        if not self._app.check_may_change():
            return
        limit = self._try(session.reached_limit) if isinstance(session, Run) else None
        if limit and isinstance(session, Run) and session.record.resumes_from:
            self._ask_how_to_continue(session, limit)
        else:
            action = f"resume {label(session)}"
            self._launch_again(action, session, session.resume_configs, session.resume, asks=True)

    def _ask_how_to_continue(self, run: Run, limit: tuple[str, int]) -> None:
        from distrain.tui.dialogs.completed_run import ask_how_to_continue

        def resume(new_limit: int) -> None:
            changes = {limit[0]: new_limit}
            configs = partial(run.resume_configs, changes)
            start = partial(run.resume, changes)
            self._launch_again(f"resume {label(run)}", run, configs, start, asks=False)

        rerun = partial(self._rerun, run, asks=False)
        ask_how_to_continue(self._app, label(run), limit, rerun, resume)

    def _launch_again(
        self,
        action: str,
        session: Session,
        make_configs: Callable[[], Sequence[RunConfig]],
        start: Callable[..., Session],
        asks: bool,
    ) -> None:
        try:
            configs = make_configs()
            folder = session.launched_from
            code = session.untrusted_code()
        except DistrainError as error:
            self._app.refuse(str(error))
            return
        request = LaunchRequest(action, configs, start, session.runs_dir, folder, asks)
        if code:
            self._ask_about_code(request._replace(asks=False), session, code)
        else:
            self._app.launches.launch(request)

    def _ask_about_code(
        self, request: LaunchRequest, session: Session, code: Sequence[str]
    ) -> None:
        from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

        def answer(choice: str | None) -> None:
            if choice:
                session.trust()
                self._app.launches.launch(request)

        text = describe(f"{session.kind} {session.id} ({session.dir})", code)
        answers = [Answer("trust", "Trust and execute it", "error", "t")]
        title = f"Trust the code of {label(session)}?"
        self._app.push_screen(ChoiceDialog(title, text, answers), answer)

    # --- notes ----------------------------------------------------------------------------------

    def edit(self, session: Session, on_done: Callable[[], None] = do_nothing) -> None:
        if not self._app.check_may_change():
            return
        from distrain.tui.dialogs.edit import EditDialog

        meta = session.meta
        before = {"name": session.name, "notes": meta.notes, "tags": ", ".join(meta.tags)}

        def save(fields: dict[str, str]) -> str:
            changes: dict[str, Any] = {
                key: value for key, value in fields.items() if value != before[key]
            }
            if "tags" in changes:
                changes["tags"] = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
            try:
                session.set_meta(**changes)
            except DistrainError as error:
                return str(error)
            self._app.notify(f"saved {label(session)}")
            on_done()
            return ""

        self._app.push_screen(EditDialog(f"Edit {session.id}", before, save))

    def toggle_pin(self, session: Session) -> None:
        if self._app.check_may_change():
            self._try(lambda: session.set_meta(pinned=not session.meta.pinned))

    # --- the trash ------------------------------------------------------------------------------

    def delete(self, sessions: Sequence[Session], on_done: Callable[[], None] = do_nothing) -> None:
        if not self._app.check_may_change():
            return
        for session in sessions:
            if session.is_live:
                name = label(session)
                self._app.refuse(f"{name} is {session.status}; stop it before deleting it")
                return
        try:
            require_unused([session.record for session in sessions if isinstance(session, Run)])
        except DistrainError as error:
            self._app.refuse(str(error))
            return

        from distrain.tui.dialogs.dialog import Answer, ChoiceDialog

        def answer(choice: str | None) -> None:
            if choice:
                self._move_to_trash(sessions)
                on_done()

        what = label(sessions[0]) if len(sessions) == 1 else count(sessions)
        text = (
            f"Records and checkpoints move to {TRASH} in the runs folder; "
            f"{self._app.key('runs.undo')} restores them."
        )
        answers = [Answer("yes", "Move to trash", "error", "t")]
        self._app.push_screen(ChoiceDialog(f"Move {what} to the trash?", text, answers), answer)

    def _move_to_trash(self, sessions: Sequence[Session]) -> None:
        removed = []
        names = []
        for session in sessions:
            if path := self._try(session.remove):
                removed.append(session)
                names.append(path.name)
        if removed:
            self._deleted = names
            undo = self._app.key("runs.undo")
            self._app.notify(f"moved {count(removed)} to the trash; {undo} restores")

    def restore(self, on_done: Callable[[], None] = do_nothing) -> None:
        if not self._app.check_may_change():
            return
        if not self._deleted:
            self._app.refuse("nothing to restore since the app was opened")
            return
        remaining = []
        for name in self._deleted:
            folder = self._app.runs_dir / TRASH / name
            if not self._try(partial(restore, folder)):
                remaining.append(name)
        restored = len(self._deleted) - len(remaining)
        self._deleted = remaining
        if restored:
            self._app.notify(f"restored {formatting.plural(restored, 'run')}")
        on_done()

    # --- messages -------------------------------------------------------------------------------

    def report_end(self, session: Session, ended: float | None) -> None:
        if (session.id, ended) in self._reported:
            return
        self._reported.add((session.id, ended))
        status = session.status
        if self._app.settings.bell:
            self._app.bell()
        screen = self._app.screen
        if status == "failed" and isinstance(screen, AppScreen) and screen.shown_id == session.id:
            return  # its own screen shows what failed, and a message would hide some of its ranks
        severity = {"completed": "information", "stopped": "warning"}.get(status, "error")
        reason = formatting.single_line(session.reason or status)
        self._app.notify(f"{label(session)}: {reason}", severity=severity, timeout=8)

    def _try(self, act: Callable[[], T]) -> T | None:
        """Return what `act` returns; None where it raises."""
        try:
            return act()
        except DistrainError as error:
            self._app.refuse(str(error))
            return None

    def _in_thread(self, act: Callable[[], object], message: str) -> None:
        """Act, and then show the message: a supervisor may take seconds to answer."""

        def acted() -> None:
            act()  # the app says why it failed
            self._app.call_from_thread(self._app.notify, message)

        self._app.run_worker(acted, thread=True)


def label(session: Session | Group) -> str:
    """Return what messages call a run, bench or group: its name, else its id."""
    return session.name or session.id


def count(sessions: Sequence[Session]) -> str:
    """Return "2 runs" or "1 bench", or "2 runs and benches" of several where one is a bench."""
    if all(session.kind == "run" for session in sessions):
        return formatting.plural(len(sessions), "run")
    return "1 bench" if len(sessions) == 1 else f"{len(sessions):,} runs and benches"
